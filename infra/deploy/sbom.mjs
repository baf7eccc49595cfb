// node infra/deploy/sbom.mjs ALL: reads the list that `npm sbom` makes of all packages, and prints it with only those
// that the image has. `npm sbom --omit=dev` would leave out the packages that are bundled into dist/, since they are
// development dependencies.
import { readFileSync } from "node:fs";

const text = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
const installed = Object.entries(JSON.parse(text("node_modules/.package-lock.json")).packages).map(
  ([path, { version }]) => `${path.split("node_modules/").at(-1)}@${version}`,
);
// The build lists the bundled packages in dist/THIRD-PARTY.txt, each with a line `name@version (licence)`.
const builtIn = [...text("dist/THIRD-PARTY.txt").matchAll(/^((?:@[^\s/@]+\/)?[^\s/@]+@\S+) \(/gm)].map(
  ([, one]) => one,
);
const there = new Set([...installed, ...builtIn]);

const all = JSON.parse(readFileSync(process.argv[2], "utf8"));
const nameOf = ({ group, name, version }) => `${group ? `${group}/` : ""}${name}@${version}`;
const components = all.components.filter((one) => there.has(nameOf(one)));
const kept = new Set([all.metadata.component, ...components].map((one) => one["bom-ref"]));
const dependencies = all.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((one) => kept.has(one)) }));
console.log(JSON.stringify({ ...all, components, dependencies }, null, 2));
