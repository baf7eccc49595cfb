/**
 * Loaded first in the child that reads strangers' documents (extractor.ts), before any parser: takes away every way to a
 * network that Node offers, and the console, since stdout carries the answer and nothing else. Files, processes, threads and
 * addons are taken by Node's permission model and code from text by a flag; what is done here holds on the versions of Node
 * whose permission model leaves the network open.
 */
import dgram from "node:dgram";
import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";

function refuse() {
  throw new Error("there is no network in this process");
}

// http, https, tls and fetch all come to a socket's connect in the end; pipes that are open already do not.
net.Socket.prototype.connect = refuse;
net.Server.prototype.listen = refuse;
for (const name of ["bind", "connect", "send"]) dgram.Socket.prototype[name] = refuse;
for (const names of [dns, dns.promises, dns.Resolver.prototype, dns.promises.Resolver.prototype]) {
  for (const name of Object.getOwnPropertyNames(names)) {
    if (name !== "constructor" && typeof names[name] === "function") names[name] = refuse;
  }
}
for (const name of ["fetch", "WebSocket", "EventSource", "XMLHttpRequest"]) Reflect.deleteProperty(globalThis, name);
for (const name of ["debug", "error", "info", "log", "trace", "warn"]) console[name] = () => {};
syncBuiltinESMExports();
