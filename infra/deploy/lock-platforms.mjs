// node infra/deploy/lock-platforms.mjs: name every platform's optional package in package-lock.json.
// `npm install` leaves out those that it could not look up, and `npm ci` then refuses the lock on every machine.
// With --integrity this script asks npm for the hash of each package whose entry in the lock has none.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const FILE = new URL("../../package-lock.json", import.meta.url);

/**
 * Returns the optional packages that the lock names as a dependency but has no entry for, each as its name, its version
 * and the entry of the package that depends on it.
 */
export function missing(packages) {
  return Object.entries(packages).flatMap(([path, entry]) =>
    Object.entries(entry.optionalDependencies ?? {}).flatMap(([name, version]) => {
      for (let base = path; ; base = base.slice(0, Math.max(0, base.lastIndexOf("/node_modules/")))) {
        if (packages[`${base ? `${base}/` : ""}node_modules/${name}`]) return [];
        if (!base.includes("/node_modules/")) break;
      }
      return packages[`node_modules/${name}`] ? [] : [[name, version, entry]];
    }),
  );
}

/**
 * Returns the entry to add to the lock for an optional package whose name holds its platform (`..-darwin-arm64`,
 * `..-linux-x64-musl`); null when the name holds none, or the version is not exact.
 */
export function entryOf(name, version, parent) {
  const tail = name.split("/").at(-1);
  const os = ["darwin", "win32", "linux", "android", "freebsd"].filter((one) => tail.includes(one));
  const cpu = tail.includes("arm64") ? "arm64" : /x64|amd64/.test(tail) ? "x64" : null;
  if (os.length !== 1 || cpu === null || !/^\d/.test(version)) return null;
  return {
    version,
    cpu: [cpu],
    ...(parent.dev ? { dev: true } : {}),
    ...(tail.includes("musl") ? { libc: ["musl"] } : {}),
    optional: true,
    os,
  };
}

/**
 * Returns the packages whose entry has no hash of their bytes, each as the key of its entry, its name and its version.
 */
export function bare(packages) {
  // Links lead to the folders of the project's workspaces, which need no hash.
  return Object.entries(packages).flatMap(([path, { integrity, link, version }]) =>
    path.includes("node_modules/") && !integrity && !link ? [[path, path.split("node_modules/").at(-1), version]] : [],
  );
}

/** Asks npm for the hash of exactly this version. Returns null when npm has none. */
function hashOf(name, version) {
  try {
    const said = execFileSync("npm", ["view", `${name}@${version}`, "dist.integrity"], {
      encoding: "utf8",
      stdio: "pipe",
    });
    return /^sha512-[A-Za-z0-9+/]{86}==$/.exec(said.trim())?.[0] ?? null;
  } catch {
    return null;
  }
}

if (process.argv[1] && import.meta.url.endsWith(process.argv[1].split("/").at(-1))) {
  const lock = JSON.parse(readFileSync(FILE, "utf8"));
  const added = missing(lock.packages).flatMap(([name, version, parent]) => {
    const entry = entryOf(name, version, parent);
    if (!entry) return [];
    lock.packages[`node_modules/${name}`] = entry;
    return [name];
  });
  if (process.argv.includes("--integrity")) {
    for (const [path, name, version] of bare(lock.packages)) {
      const integrity = hashOf(name, version);
      console.log(`${name}@${version}: ${integrity ?? "npm has no hash of it here"}`);
      const { version: _, ...rest } = lock.packages[path];
      if (integrity) lock.packages[path] = { version, integrity, ...rest };
    }
  }
  const { "": root, ...rest } = lock.packages;
  lock.packages = { "": root, ...Object.fromEntries(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1))) };
  writeFileSync(FILE, `${JSON.stringify(lock, null, 2)}\n`);
  console.log(added.length ? `added ${added.join(", ")}` : "the lock names every platform already");
}
