import { etcdStore } from "jwksd/store/etcd";

const members = ["https://a.example:2379", "https://b.example:2379", "https://c.example:2379"];
export const store = etcdStore(members, { issuer: "https://login.example.com" });
