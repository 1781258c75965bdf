import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { createGuardedFetch, guardedFetch } from "../../src/library/node/index.ts";
import { isPublicAddress } from "../../src/library/node/addresses.ts";
import { verdict } from "../token/compact.ts";

const forbidden: Record<string, string[]> = {
  "this network (RFC 1122 section 3.2.1.3)": ["0.0.0.0", "0.1.2.3", "0.255.255.255"],
  "private (RFC 1918)": [
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
  ],
  "carrier-grade NAT (RFC 6598)": ["100.64.0.0", "100.100.100.200", "100.127.255.255"],
  "loopback (RFC 1122 section 3.2.1.3)": ["127.0.0.1", "127.1.2.3", "127.255.255.255"],
  "link-local, with the metadata services of clouds (RFC 3927)": ["169.254.0.1", "169.254.169.254", "169.254.170.2"],
  "the platform of Azure (learn.microsoft.com, What is IP address 168.63.129.16?)": [
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "::ffff:a83f:8110",
  ],
  "protocol assignments (RFC 6890)": ["192.0.0.1", "192.0.0.192"],
  "documentation (RFC 5737)": ["192.0.2.1", "198.51.100.1", "203.0.113.1"],
  "6to4 relays (RFC 7526)": ["192.88.99.1"],
  "benchmarks (RFC 2544)": ["198.18.0.1", "198.19.255.255"],
  "multicast (RFC 5771)": ["224.0.0.1", "239.255.255.255"],
  "reserved (RFC 1112 section 4)": ["240.0.0.1", "255.255.255.254"],
  broadcast: ["255.255.255.255"],
  "unspecified (RFC 4291 section 2.5.2)": ["::", "0:0:0:0:0:0:0:0"],
  "loopback (RFC 4291 section 2.5.3)": ["::1", "0:0:0:0:0:0:0:1"],
  "IPv4-compatible (RFC 4291 section 2.5.5.1)": ["::127.0.0.1", "::7f00:1", "::a9fe:a9fe", "::808:808", "::2"],
  "IPv4-mapped (RFC 4291 section 2.5.5.2)": [
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
  ],
  "IPv4-translated (RFC 2765)": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
  "NAT64 (RFC 6052, RFC 8215)": ["64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::808:808", "64:ff9b:1::1"],
  "discard (RFC 6666)": ["100::1"],
  "Teredo (RFC 4380)": ["2001::1", "2001:0:7f00:1::"],
  "6to4 (RFC 3056)": ["2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1"],
  "documentation (RFC 3849, RFC 9637)": ["2001:db8::1", "3fff::1"],
  "benchmarks (RFC 5180)": ["2001:2::1"],
  "ORCHID (RFC 4843, RFC 7343)": ["2001:10::1", "2001:20::1"],
  "segment routing (RFC 9602)": ["5f00::1"],
  "unique local (RFC 4193)": ["fc00::1", "fd00::1", "fd00:ec2::254", "fdff:ffff::1"],
  "link-local (RFC 4291 section 2.5.6)": ["fe80::1", "fe80::1%eth0", "febf::1"],
  "site-local (RFC 3879)": ["fec0::1", "feff::1"],
  "multicast (RFC 4291 section 2.7)": ["ff00::1", "ff02::1", "ff0e::1"],
  "not assigned": ["1::", "1fff::1", "4000::1", "8000::1", "e000::1"],
  "no address": [
    "",
    "localhost",
    "example.com",
    "1.2.3",
    "1.2.3.4.5",
    "1.2.3.256",
    ":::1",
    "12345::",
    "127.1",
    "2130706433",
  ],
};

for (const [range, addresses] of Object.entries(forbidden)) {
  test(`not public: ${range}`, () => {
    for (const address of addresses) assert.equal(isPublicAddress(address), false, address);
  });
}

test("public", () => {
  const addresses = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
  ];
  addresses.push(
    "128.0.0.1",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
  );
  addresses.push("198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8");
  addresses.push("2606:4700:4700::1111", "2a00:1450::1", "2400::1", "2003::1", "3ffe:ffff::1");
  for (const address of addresses) assert.equal(isPublicAddress(address), true, address);
});

describe("an address in place of a host name is checked, however it is written", () => {
  const urls = [
    "https://127.0.0.1/jwks",
    "https://127.0.0.1:8443/jwks",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://%31%32%37.0.0.1/",
    "https://①②⑦.0.0.1/",
    "https://0/",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
  ];
  for (const url of urls) {
    test(url, async () => {
      const error = { name: "FetchError", code: "ERR_ADDRESS_FORBIDDEN", retryable: false };
      const guarded = createGuardedFetch({ resolve: () => assert.fail("an address was resolved") });
      await assert.rejects(guarded(url, {}), error);
      await assert.rejects(guardedFetch(url, {}), error);
    });
  }
});

describe("only https", () => {
  for (const url of [
    "http://client.example/",
    "http://127.0.0.1/",
    "ftp://client.example/",
    "file:///etc/passwd",
    "data:,x",
    "ws://client.example/",
  ]) {
    test(`${url} is refused before its host is resolved`, async () => {
      const guarded = createGuardedFetch({
        resolve: () => assert.fail("the host was resolved"),
        isAllowed: () => true,
      });
      assert.equal(await verdict(guarded(url, {})), "ERR_URL_INSECURE");
    });
  }
});

test("only GET is sent, and no body", async () => {
  const guarded = createGuardedFetch({ resolve: () => assert.fail("the host was resolved") });
  for (const init of [{ method: "POST" }, { method: "HEAD" }, { body: "x" }])
    assert.equal(await verdict(guarded("https://client.example/", init)), "ERR_OPTION_INVALID");
  assert.equal(await verdict(guardedFetch("https://127.0.0.1/", { method: "get" })), "ERR_ADDRESS_FORBIDDEN");
});

describe("every address of a host must be public", () => {
  const good = ["8.8.8.8", "2606:4700:4700::1111"];
  const rows: [name: string, addresses: string[]][] = [
    ["none", []],
    ["one that is not", ["127.0.0.1"]],
    ["one that is not, first", ["10.0.0.1", ...good]],
    ["one that is not, in between", ["8.8.8.8", "169.254.169.254", "2606:4700:4700::1111"]],
    ["one that is not, last", [...good, "::1"]],
    ["one that is no address", [...good, "localhost"]],
  ];
  for (const [name, addresses] of rows) {
    test(name, async () => {
      const resolved = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
      const guarded = createGuardedFetch({ resolve: async () => resolved });
      assert.equal(await verdict(guarded("https://client.example/", {})), "ERR_ADDRESS_FORBIDDEN");
    });
  }

  for (const answer of [Promise.resolve(false), "no", 1, undefined]) {
    test(`a rule that answers ${inspect(answer)} does not allow it`, async () => {
      const isAllowed = (() => answer) as unknown as (address: string) => boolean;
      const guarded = createGuardedFetch({ resolve: () => assert.fail("resolved"), isAllowed });
      assert.equal(await verdict(guarded("https://127.0.0.1:1/", {})), "ERR_ADDRESS_FORBIDDEN");
    });
  }

  test("by the resolver of the system, unless there is another", async () => {
    assert.equal(await verdict(guardedFetch("https://localhost/", {})), "ERR_ADDRESS_FORBIDDEN");
  });
});
