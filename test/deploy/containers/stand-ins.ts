import { cpSync, existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { downloadJars } from "../../../fixtures/cluster/kafka.ts";
import { buildVersitygw } from "../../../fixtures/cluster/versitygw.ts";
import { run } from "./podman.ts";

/**
 * Images of the names that compose.yaml and the Dockerfile use, where no registry of images can be reached: made of
 * Debian's packages, the broker's jars from Maven, versitygw from Go's module proxy and the Node binary of npm's package
 * `node`. Each keeps what its namesake promises: entry point, user, variables, where tools lie and what a volume holds.
 */
const CACHE = join(homedir(), ".cache", "touchstone");
const NODE = "22";
const NPM = "11";
const KAFKA = "/opt/kafka";

/** What Debian's own slim image leaves out. */
const SLIM = ["doc", "man", "locale", "info"].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`);
/** Lists of packages, which an image has none of. */
const LISTS = `--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin`;
const NO_MORE = `--aptopt=APT::Install-Recommends "false"`;
/** Or a package that merges /usr comes along, and all of Perl with it. */
const MERGED = "--include=usr-is-merged";
const CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt";

/** A minimal Debian of today's packages, as an archive; made once. */
function debian(): string {
  const tar = join(CACHE, "debian-bookworm-slim.tar");
  if (existsSync(tar)) return tar;
  mkdirSync(CACHE, { recursive: true });
  const options = ["--quiet", "--variant=minbase", NO_MORE, MERGED, ...SLIM, LISTS];
  run("mmdebstrap", [...options, "bookworm", `${tar}.new.tar`]);
  renameSync(`${tar}.new.tar`, tar);
  return tar;
}

const AS_IS = { recursive: true, verbatimSymlinks: true };

/** An image of these lines. @param files path in the context, by what lies there on this machine */
function image(dir: string, tag: string, lines: readonly string[], files: Readonly<Record<string, string>> = {}): void {
  const context = join(dir, tag.replaceAll(/[/:]/g, "-"));
  mkdirSync(context, { recursive: true });
  for (const [to, from] of Object.entries(files)) cpSync(from, join(context, to), AS_IS);
  writeFileSync(join(context, "Dockerfile"), `${lines.join("\n")}\n`);
  // Docker's format: the other one forgets health checks.
  run("podman", ["build", "--quiet", "--format", "docker", "--tag", tag, context]);
}

/** `npm` and `node` of the releases that the image is for, from the registry. @returns node_modules with both */
function nodeOf(dir: string): string {
  const into = join(dir, "node");
  mkdirSync(into, { recursive: true });
  const wanted = [`node-${process.platform}-${process.arch}@${NODE}`, `npm@${NPM}`];
  run("npm", ["install", "--no-save", "--no-package-lock", "--ignore-scripts", "--silent", ...wanted], { cwd: into });
  return join(into, "node_modules");
}

/** How a broker of the official image begins: properties out of variables, a formatted folder, the broker. */
const BROKER_RUN = `#!/bin/bash
set -e
properties=/etc/kafka/kafka.properties
: > $properties
for name in $(compgen -e | grep '^KAFKA_' | grep -v '^KAFKA_\\(HEAP_OPTS\\|OPTS\\)$'); do
  key=\${name#KAFKA_}
  key=\${key//___/-}; key=\${key//__/%}; key=\${key//_/.}; key=\${key//%/_}
  echo "\${key,,}=\${!name}" >> $properties
done
${KAFKA}/bin/kafka-storage.sh format --ignore-formatted --cluster-id="$CLUSTER_ID" -c $properties
exec ${KAFKA}/bin/kafka-server-start.sh $properties
`;
const BROKER_TOOLS = {
  "kafka-server-start.sh": "kafka.Kafka",
  "kafka-storage.sh": "kafka.tools.StorageTool",
  "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
  "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
};
const launcher = (main: string) => `#!/bin/sh
exec java \${KAFKA_HEAP_OPTS:--Xmx256M} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '${KAFKA}/libs/*' -Dorg.slf4j.simpleLogger.defaultLogLevel=warn ${main} "$@"
`;

async function broker(dir: string, tag: string): Promise<void> {
  const tools = join(dir, "kafka-bin");
  mkdirSync(tools, { recursive: true });
  for (const [name, main] of Object.entries(BROKER_TOOLS)) {
    writeFileSync(join(tools, name), launcher(main), { mode: 0o755 });
  }
  writeFileSync(join(dir, "kafka-run"), BROKER_RUN, { mode: 0o755 });
  const lines = [
    "FROM stand-in-tools",
    "RUN useradd --create-home --uid 1000 appuser && mkdir -p /etc/kafka/docker /etc/kafka/secrets /var/lib/kafka/data /mnt/shared/config",
    `COPY libs ${KAFKA}/libs`,
    `COPY bin ${KAFKA}/bin`,
    "COPY run /etc/kafka/docker/run",
    `RUN chown -R appuser /etc/kafka /var/lib/kafka ${KAFKA}/bin`,
    "EXPOSE 9092",
    "USER appuser",
    'VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]',
    'CMD ["/etc/kafka/docker/run"]',
  ];
  image(dir, tag, lines, { libs: await downloadJars(), bin: tools, run: join(dir, "kafka-run") });
}

async function store(dir: string, tag: string): Promise<void> {
  const lines = [
    "FROM stand-in-tools",
    "COPY versitygw /usr/local/bin/versitygw",
    "RUN mkdir -p /tmp/vgw",
    'ENTRYPOINT ["/usr/local/bin/versitygw"]',
  ];
  image(dir, tag, lines, { versitygw: await buildVersitygw() });
}

function proxy(dir: string, tag: string): void {
  const lines = [
    "FROM stand-in-tools",
    "RUN ln -sf /dev/stdout /var/log/nginx/access.log && ln -sf /dev/stderr /var/log/nginx/error.log",
    "EXPOSE 80",
    "STOPSIGNAL SIGQUIT",
    `CMD ["nginx", "-g", "daemon off;"]`,
  ];
  image(dir, tag, lines);
}

/** The base of our own image: Node, its headers and npm under /usr/local, as in the official one. */
function node(dir: string, tag: string): void {
  const packages = nodeOf(dir);
  const lines = [
    "FROM stand-in-debian",
    "COPY node/bin/node /usr/local/bin/node",
    "COPY node/include /usr/local/include",
    "COPY npm /usr/local/lib/node_modules/npm",
    "RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx",
    // Whom this machine trusts: a proxy of its own may stand between it and the registry.
    `COPY certificates ${CERTIFICATES}`,
    `ENV NODE_EXTRA_CA_CERTS=${CERTIFICATES}`,
    "RUN groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node",
    'CMD ["node"]',
  ];
  const release = `node-${process.platform}-${process.arch}`;
  image(dir, tag, lines, { node: join(packages, release), npm: join(packages, "npm"), certificates: CERTIFICATES });
}

/** Names of images as compose.yaml and the Dockerfile have them, by what a stand-in of each is made of. */
const MADE: Readonly<Record<string, (dir: string, tag: string) => void | Promise<void>>> = {
  "node:22-bookworm-slim": node,
  "apache/kafka": broker,
  "versity/versitygw": store,
  nginx: proxy,
};

/** Makes what stands in for these images. @param names with their tags; @returns which is made of what, for the log */
export async function makeStandIns(dir: string, names: readonly string[]): Promise<string[]> {
  run("podman", ["import", "--quiet", debian(), "stand-in-debian"]);
  const apt = "apt-get update -qq && apt-get install -y -qq --no-install-recommends";
  const tools = "openjdk-17-jre-headless nginx-light wget netcat-openbsd";
  image(dir, "stand-in-tools", [
    "FROM stand-in-debian",
    `RUN mkdir -p /usr/share/man/man1 && ${apt} ${tools} && rm -rf /var/lib/apt/lists/*`,
  ]);
  for (const name of names) {
    const [known] = Object.entries(MADE).filter(([one]) => name === one || name.startsWith(`${one}:`));
    if (!known) throw new Error(`nothing stands in for the image ${name}`);
    await known[1](dir, name);
  }
  return names.map((name) => `${name}: STAND-IN made of packages, since no registry of images is asked`);
}
