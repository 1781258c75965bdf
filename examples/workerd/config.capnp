using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [ (name = "provider", worker = .provider) ],
  sockets = [ (name = "http", address = "*:3000", http = (), service = "provider") ],
);

const provider :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "dist/worker.js") ],
  bindings = [ (name = "ISSUER", fromEnvironment = "ISSUER") ],
  compatibilityDate = "2026-01-01",
);
