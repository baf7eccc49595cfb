import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import ipaddr from "ipaddr.js";
import { afterAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { lifecycleOf, policyOf } from "../../commands/buckets.ts";
import { loadConfig, Settings } from "../../infra/config.ts";
import { createKeyring, createSecret, readRing, rotateKey } from "../../infra/keys/keys.ts";
import { TOPIC_CONFIG } from "../../infra/log/kafka/topics.ts";
import { COSIGNATURE, formatVkey } from "../../infra/tree/note.ts";
import { readPolicy } from "../../infra/tree/policy.ts";
import { objectKey } from "../../pipelines/orders/order-objects.ts";
import { OBJECTS } from "../../pipelines/published/objects.ts";
import { PERMANENT_TOPICS, TOPICS } from "../../pipelines/record/topics.ts";
import { SILENCE_MS } from "../../serving/main.ts";
import { KEPT_DAYS } from "../../serving/work/evidence-bodies.ts";
import { runs } from "../helpers/programs.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const DEPLOY = join(ROOT, "infra/deploy");
const dir = mkdtempSync(join(tmpdir(), "deploy-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Names of variables whose value nobody else may know. */
const SECRET = /(?:SECRET|PASSWORD|TOKEN|PRIVATE_KEY|PUBLIC_KEY)(?:_KEY)?$/;

/** What an operator gives compose.yaml where not any text will do. */
const GIVEN: Record<string, string> = {
  ...{ BASE_URL: "http://localhost:8080", NETWORK: "eip155:8453", RPC_URL: "http://host.docker.internal:8545" },
  ...{ CONTROL_URLS: '["https://control.example/"]', CATALOGUES: '["https://catalogue.example/"]' },
};

/** Every command line that a file of the deployment gives to touchstone: words after the program. */
const commandLines = new Map<string, readonly string[]>();

describe("compose.yaml", () => {
  const Condition = z.enum(["service_started", "service_healthy", "service_completed_successfully"]);
  const Words = z.array(z.string()).min(1);
  const Service = z.strictObject({
    image: z.string().regex(/^[a-z0-9./-]+(?::[a-z0-9.-]+)?$/),
    build: z
      .strictObject({ context: z.string(), dockerfile: z.string(), args: z.record(z.string(), z.string()) })
      .optional(),
    command: Words.optional(),
    entrypoint: Words.optional(),
    init: z.literal(true).optional(),
    extra_hosts: Words.optional(),
    environment: z.record(z.string().regex(/^[A-Z][A-Z0-9_]*$/), z.string()).optional(),
    volumes: z.array(z.string().regex(/^(?:(?:\.\/[\w./-]+|[a-z0-9-]+):)?\/[\w./-]*(?::ro)?$/)).optional(),
    ports: z.array(z.string().regex(/^\d+:\d+$/)).optional(),
    depends_on: z.union([Words, z.record(z.string(), z.strictObject({ condition: Condition }))]).optional(),
    restart: z.enum(["no", "always", "on-failure", "unless-stopped"]),
    stop_grace_period: z
      .string()
      .regex(/^\d+s$/)
      .optional(),
    deploy: z.strictObject({ replicas: z.int().min(1) }).optional(),
    healthcheck: z
      .strictObject({
        ...{ test: Words, interval: z.string(), timeout: z.string(), start_period: z.string() },
      })
      .optional(),
    read_only: z.boolean().optional(),
    tmpfs: Words.optional(),
    cap_drop: Words.optional(),
    security_opt: Words.optional(),
    networks: z.record(z.string(), z.strictObject({ ipv4_address: z.ipv4().optional() })).optional(),
  });
  const Network = z.strictObject({
    ipam: z
      .strictObject({ config: z.tuple([z.strictObject({ subnet: z.cidrv4(), ip_range: z.cidrv4() })]) })
      .optional(),
  });
  const Compose = z.object({
    services: z.record(z.string(), Service),
    volumes: z.record(z.string(), z.null()),
    networks: z.record(z.string(), Network),
  });
  const text = readFileSync(join(DEPLOY, "compose.yaml"), "utf8");
  const { services, volumes, networks } = Compose.parse(parse(text, { merge: true }));
  for (const [name, { image, entrypoint, command }] of Object.entries(services)) {
    if (image === "touchstone" && !entrypoint) commandLines.set(`compose ${name}`, command!);
  }

  test("names only services, volumes and files that there are", () => {
    for (const [name, service] of Object.entries(services)) {
      const { depends_on: needs = [] } = service;
      for (const other of Array.isArray(needs) ? needs : Object.keys(needs)) {
        expect(Object.keys(services), `${name} needs ${other}`).toContain(other);
      }
      for (const volume of service.volumes ?? []) {
        const [from, to] = volume.split(":") as [string, string?];
        // A volume without a name goes with its container: what is there can be loaded again.
        if (to === undefined) expect([name, from]).toEqual([name, "/data"]);
        else if (from.startsWith("./")) readFileSync(join(DEPLOY, from));
        else expect(Object.keys(volumes), `${name} mounts ${from}`).toContain(from);
      }
    }
  });

  test("every setting of a role is one that the configuration knows, and holds", () => {
    let seen = 0;
    for (const [name, { image, environment: given = {} }] of Object.entries(services)) {
      if (image !== "touchstone") continue;
      const { TOUCHSTONE_CONFIG: file, ...environment } = given;
      // What witness-keys writes.
      if (file !== undefined) expect([name, file]).toEqual(["publisher", "/witnessing/publisher.json"]);
      // As compose puts in the defaults, and what has none.
      const env = Object.entries(environment).map(([key, value]) => [
        key,
        value
          .replace(/\$\{\w+:-([^}]*)\}/g, "$1")
          .replace(/^\$\{(\w+):\?[^}]+\}$/, (_, name: string) => GIVEN[name] ?? `a value of ${name}`),
      ]);
      expect(() => loadConfig(undefined, Object.fromEntries(env)), name).not.toThrow();
      seen += env.length;
    }
    expect(seen).toBeGreaterThan(20);
    expect(() => loadConfig(undefined, { TOUCHSTONE_STORES_PRIVAT: "s3://x-y-z" })).toThrow(/no such setting/);
  });

  test("the private store's credentials go to the pipeline and the operator, and to no replica", () => {
    const holders = Object.entries(services).filter(([, { environment: env }]) => env?.TOUCHSTONE_STORES_PRIVATE_KEY);
    expect(holders.map(([name]) => name).sort()).toEqual(["buckets", "observer-1", "observer-2", "owner", "publisher"]);
    const writers = Object.entries(services).filter(([, { environment: env }]) => env?.TOUCHSTONE_STORES_PUBLIC_KEY);
    expect(writers.map(([name]) => name).sort()).toEqual(["owner", "publisher"]);
    const idsOf = (name: string) => {
      const { TOUCHSTONE_STORES_PRIVATE_KEY_ID: own, TOUCHSTONE_STORES_PUBLIC_KEY_ID: other } =
        services[name]!.environment!;
      return [own, other];
    };
    expect(new Set([...idsOf("owner"), ...idsOf("publisher")])).toEqual(new Set(["pipeline", "owner", "publisher"]));
    // Those that the policies speak of, and that the store is told of.
    const [, ...words] = services.buckets!.command!;
    expect(words).toEqual(["publisher", "owner", "pipeline"].flatMap((user) => [`--${user}`, user]));
    for (const user of ["publisher", "owner", "pipeline"]) {
      expect(services.users!.entrypoint![2]).toContain(`${user}:$$${user.toUpperCase()}_SECRET`);
    }
  });

  test("a secret has no default: compose ends and says which one it wants", () => {
    let asked = 0;
    for (const [name, { environment = {}, build }] of Object.entries(services)) {
      for (const [key, value] of Object.entries({ ...environment, ...build?.args })) {
        if (!SECRET.test(key) && key !== "NODE_IMAGE") continue;
        // A name in capitals, and words that say what it is.
        expect([name, key, value]).toEqual([name, key, expect.stringMatching(/^\$\{[A-Z][A-Z0-9_]*:\?[^}]{20,}\}$/)]);
        asked++;
      }
    }
    expect(asked).toBeGreaterThan(10);
  });

  test("env.example has a line for every value that compose.yaml takes, and none else", () => {
    const taken = new Set([...text.matchAll(/(?<!\$)\$\{([A-Z0-9_]+):[?-]/g)].map(([, name]) => name!));
    const lines = readFileSync(join(DEPLOY, "env.example"), "utf8").matchAll(/^([A-Z0-9_]+)=/gm);
    expect([...lines].map(([, name]) => name!).sort()).toEqual([...taken].filter((name) => name !== "REVISION").sort());
    // Nothing is taken without words for who has none, but what has a default.
    expect(text.match(/(?<!\$)\$\{[A-Z0-9_]+\}/)).toBeNull();
  });

  test("each observer has wallets of its own, in a volume with a name", () => {
    const observers = Object.entries(services).filter(([, { command }]) => command?.[0] === "observe");
    const wallets = observers.map(([name, { volumes: mounted, deploy }]) => {
      expect([name, deploy?.replicas ?? 1]).toEqual([name, 1]);
      return mounted!.find((one) => one.endsWith(":/data/wallets"));
    });
    expect(wallets).toEqual(["wallets-1:/data/wallets", "wallets-2:/data/wallets"]);
    // And the image makes none behind anybody's back.
    expect(readFileSync(join(DEPLOY, "Dockerfile"), "utf8")).not.toMatch(/^VOLUME/m);
  });

  test("one proxy is believed: nginx, at an address that is its own", () => {
    const { front } = services.nginx!.networks!;
    const replicas = ["replica-1", "replica-2"].map((name) => services[name]!);
    for (const { environment } of replicas) {
      const { trusted_proxies } = loadConfig(undefined, {
        TOUCHSTONE_BASE_URL: "http://localhost:8080",
        TOUCHSTONE_LIMITS_TRUSTED_PROXIES: environment!.TOUCHSTONE_LIMITS_TRUSTED_PROXIES,
      }).limits;
      expect(trusted_proxies).toEqual([front!.ipv4_address]);
    }
    // Whom nginx asks, at addresses that it looks up once.
    const asked = replicas.map(({ networks: of }) => `replica:${of!.front!.ipv4_address}`);
    expect(services.nginx!.extra_hosts).toEqual(asked);
    expect(Object.keys(services.nginx!.networks!)).toEqual(["front"]);
    const [{ subnet, ip_range }] = networks.front!.ipam!.config;
    const fixed = [front!.ipv4_address!, ...asked.map((one) => one.replace("replica:", ""))];
    expect(new Set(fixed).size).toBe(3);
    for (const text of fixed) {
      const own = ipaddr.parse(text);
      expect(own.match(ipaddr.parseCIDR(subnet))).toBe(true);
      // No other container is ever given it.
      expect(own.match(ipaddr.parseCIDR(ip_range))).toBe(false);
    }
    // Whoever is in that network could write the header; nobody else is.
    const inside = Object.entries(services).filter(([, { networks: of }]) => of && "front" in of);
    expect(inside.map(([name]) => name).sort()).toEqual(["nginx", "replica-1", "replica-2"]);
  });

  test("each role has its own folder of keys, made from the one that keygen made", () => {
    const keysOf = (name: string) => services[name]!.volumes!.filter((one) => one.endsWith(":/data/keys:ro"));
    const audience = ["publisher", "observer", "replica", "owner"];
    for (const name of ["observer-1", "observer-2", "owner", "publisher", "replica-1", "replica-2"]) {
      expect(keysOf(name)).toEqual([`keys-${name.replace(/-\d$/, "")}:/data/keys:ro`]);
    }
    const { entrypoint, volumes: made } = services["key-folders"]!;
    const [, , script] = entrypoint!;
    expect(made).toEqual(["keys:/data/keys:ro", ...audience.map((kind) => `keys-${kind}:/keys-${kind}`)]);
    const image = readFileSync(join(DEPLOY, "Dockerfile"), "utf8");
    const owned = /install -d -o touchstone -m 0700 ((?:.+\\\n)*.+)$/m.exec(image)![1]!.split(/[ \\\n]+/);
    const witnessing = ["/witness-1", "/witness-2", "/witnessing"];
    expect(owned).toEqual([
      "/data",
      "/data/keys",
      "/data/wallets",
      ...audience.map((kind) => `/keys-${kind}`),
      ...witnessing,
    ]);
    // The script itself, over a folder as keygen makes it, with these paths below one of ours.
    const root = join(dir, "keys-of-compose");
    for (const path of owned) mkdirSync(join(root, path), { recursive: true, mode: 0o700 });
    createKeyring(join(root, "data/keys"), new Date());
    for (const name of ["observer", "pages"]) createSecret(join(root, "data/keys"), name);
    const here = script!.replaceAll("$$", "$").replaceAll(/(?<= )\/(?=data|keys-)/g, `${root}/`);
    const ran = spawnSync("/bin/sh", ["-c", here], { encoding: "utf8" });
    expect(ran.status, ran.stderr).toBe(0);
    const kinds = (folder: string) =>
      readdirSync(join(root, folder))
        .map((name) => name.replace(/-.*\.pem$/, ".pem"))
        .sort();
    expect(kinds("keys-publisher")).toEqual(["answers.pem", "cards.pem", "keyring.json", "log.pem", "witness.pem"]);
    expect(kinds("keys-observer")).toEqual(["keyring.json", "observer.secret", "pages.secret"]);
    expect(kinds("keys-replica")).toEqual(["answers.pem", "keyring.json", "pages.secret"]);
    expect(kinds("keys-owner")).toEqual(["keyring.json"]);
  });

  test("two witnesses, of one log; the publisher asks them, and a policy names them", () => {
    const { entrypoint, volumes: made, environment: given } = services["witness-keys"]!;
    expect(made).toEqual([
      "keys:/data/keys:ro",
      ...["witness-1", "witness-2", "witnessing"].map((one) => `${one}:/${one}`),
    ]);
    // The script itself, as key-folders above: with folders of ours, and the program from its sources.
    const root = join(dir, "witnesses-of-compose");
    for (const name of ["witness-1", "witness-2", "witnessing", "data"])
      mkdirSync(join(root, name), { recursive: true });
    createKeyring(join(root, "data/keys"), new Date("2026-01-01T00:00:00Z"));
    rotateKey(join(root, "data/keys"), "log", new Date("2026-02-01T00:00:00Z"), new Date("2026-03-01T00:00:00Z"));
    const here = entrypoint![2]!
      .replaceAll("$$", "$")
      .replaceAll(/(?<= )\/(?=witness)/g, `${root}/`)
      .replace("/opt/touchstone", ROOT)
      .replaceAll("node dist/touchstone.mjs", [process.execPath, ...runs("touchstone.ts")].join(" "));
    const env = {
      ...{ PATH: process.env.PATH, TOUCHSTONE_DATA_DIR: join(root, "data") },
      TOUCHSTONE_BASE_URL: given!.TOUCHSTONE_BASE_URL!.replace(/^\$\{(\w+):.*$/, (_, name: string) => GIVEN[name]!),
    };
    const run = () => spawnSync("/bin/sh", ["-c", here], { encoding: "utf8", env });
    expect(run()).toMatchObject({ status: 0, stderr: "" });
    const policy = readPolicy(readFileSync(join(root, "witnessing/policy")));
    const inUse = readRing(join(root, "data/keys")).keys.filter(
      ({ purpose, retired_at }) => purpose === "log" && !retired_at,
    );
    expect(policy.logs.map(({ name, publicKey }) => [name, Buffer.from(publicKey).toString("base64url")])).toEqual([
      ["localhost:8080", inUse[0]!.x],
    ]);
    const { witnesses, witnessing } = loadConfig(join(root, "witnessing/publisher.json"), {});
    expect(witnesses.map(({ key }) => key)).toEqual(
      [...policy.witnesses.values()].map((key) => formatVkey(key, COSIGNATURE)),
    );
    expect(witnessing.quorum).toBe(2);
    for (const { url } of witnesses) {
      const { hostname, port } = new URL(url);
      expect(services[hostname]!.command).toEqual(
        expect.arrayContaining([`/${hostname}`, `${hostname}.compose.example`, "--logs", "/witnessing/policy"]),
      );
      expect(services[hostname]!.healthcheck!.test.join(" ")).toContain(`127.0.0.1:${port}/`);
    }
    expect(services.publisher!.volumes).toContain("witnessing:/witnessing:ro");
    // Another `up` changes no key.
    const before = readFileSync(join(root, "witnessing/publisher.json"), "utf8");
    expect(run()).toMatchObject({ status: 0, stderr: "" });
    expect(readFileSync(join(root, "witnessing/publisher.json"), "utf8")).toBe(before);
  });

  test("ports meet: health, replicas behind nginx, store, brokers", () => {
    const portIn = (name: string): string | undefined =>
      /127\.0\.0\.1:(\d+)\//.exec(services[name]!.healthcheck!.test.join(" "))?.[1];
    // What the image checks of itself, at the port that every role is told.
    const image = readFileSync(join(DEPLOY, "Dockerfile"), "utf8");
    const [, own] = / TOUCHSTONE_STATUS_PORT=(\d+)$/m.exec(image)!;
    for (const name of ["observer-1", "observer-2", "owner", "publisher"]) {
      expect([name, services[name]!.healthcheck, services[name]!.environment!.TOUCHSTONE_STATUS_PORT]).toEqual([
        name,
        undefined,
        own,
      ]);
    }
    const { port } = loadConfig(undefined, {});
    for (const name of ["replica-1", "replica-2"]) expect(portIn(name)).toBe(String(port));
    expect(portIn("nginx")).toBe(services.nginx!.ports![0]!.split(":")[1]);
    const nginx = readFileSync(join(DEPLOY, "nginx-service.conf"), "utf8");
    expect(nginx).toContain(`replica:${port}`);
    expect(services.nginx!.ports).toEqual([`8080:${/listen (\d+)/.exec(nginx)![1]}`]);
    const store = /^:(\d+)$/.exec(services.s3!.command![1]!)![1];
    const brokers = new Set(["kafka1", "kafka2", "kafka3"].map((name) => `${name}:9092`));
    for (const [name, { environment: env = {} }] of Object.entries(services)) {
      const { TOUCHSTONE_STORES_ENDPOINT: endpoint, TOUCHSTONE_LOG: log } = env;
      if (endpoint) expect([name, endpoint]).toEqual([name, `http://s3:${store}`]);
      if (log) expect(new Set(log.slice("kafka://".length).split("/")[0]!.split(","))).toEqual(brokers);
    }
    for (const broker of brokers) {
      const env = services[broker.split(":")[0]!]!.environment!;
      expect(env.KAFKA_ADVERTISED_LISTENERS).toBe(`PLAINTEXT://${broker}`);
      expect(env.KAFKA_LISTENERS).toContain("PLAINTEXT://:9092");
    }
  });
});

describe("every command line is one that touchstone takes", () => {
  const helps = new Map<string, Promise<string>>();
  const helpOf = (command: string): Promise<string> => {
    const known = helps.get(command);
    if (known) return known;
    const made = new Promise<string>((done) => {
      const child = spawn(process.execPath, [...runs("touchstone.ts"), command, "--help"], { cwd: ROOT });
      let out = "";
      child.stdout.on("data", (chunk: Buffer) => {
        out += chunk;
      });
      child.once("close", () => done(out));
    });
    helps.set(command, made);
    return made;
  };

  test.each([...commandLines])("%s: %j", async (_where, words) => {
    const [command, ...rest] = words as [string, ...string[]];
    const help = await helpOf(command);
    expect(help).toMatch(new RegExp(`^Usage: touchstone ${command}\\b`));
    const takesFolder = /^Usage: touchstone \S+ \[options\] (?:\[command\] )?<dir>/.test(help);
    for (let i = takesFolder ? 1 : 0; i < rest.length; i++) {
      const [, flags] = new RegExp(`^ +(?:-\\w, )?(${rest[i]}(?: <\\w+>)?)(?: |$)`, "m").exec(help) ?? [];
      expect(flags, `${command} ${rest[i]}`).toBeDefined();
      if (flags!.includes("<")) i++;
    }
  });
});

describe("bucket policies", () => {
  interface Statement {
    Effect: string;
    Principal: "*" | { AWS: string[] };
    Action: string[];
    Resource: string[];
  }
  const names = {
    public: "pub",
    private: "priv",
    orders: "ord",
    publisher: "PUB",
    owner: "OWN",
    pipeline: "PIPE",
    seller: "SELL",
  };
  const of = (which: "public" | "private" | "orders") => JSON.parse(policyOf(which, names)).Statement as Statement[];
  const SELL = Settings.shape.sell.parse(undefined);
  const fits = (pattern: string, text: string): boolean =>
    new RegExp(`^${pattern.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*")}$`).test(text);
  const may = (which: "public" | "private" | "orders", who: string, action: string, key: string): boolean =>
    of(which).some(
      ({ Effect, Principal, Action, Resource }) =>
        Effect === "Allow" &&
        (Principal === "*" || Principal.AWS.includes(who)) &&
        Action.includes(action) &&
        Resource.some((arn) => fits(arn, `arn:aws:s3:::${names[which]}/${key}`)),
    );
  const sha = "ab".repeat(32);
  /** One key of every kind in the table of public objects. */
  const KEYS: Record<keyof typeof OBJECTS, string> = {
    ...{ checkpoint: "checkpoint", tile: "tile/0/x001/234.p/5", entries: "tile/entries/000" },
    ...{ segment: "segment/0.ndjson.zst", keys: "keys/0.json", hint: "hint/index.json", call: `call/${sha}.zst` },
    archiveFile: `archive/grades/2026-11-01.${sha.slice(0, 16)}.ndjson.zst`,
    archiveManifest: `archive/arc_${"0".repeat(26)}.json`,
    evidence: `evidence/2026-11-01/7.${sha.slice(0, 16)}.ndjson.zst`,
    ...{ liveTable: "live/0.1.arrow", historyTable: "live/history/1.2.arrow", view: "live/view.json" },
    ...{ indexList: "index/12.json", indexShard: `index/shard/${sha}.ndjson.zst` },
    indexTable: `index/table/12.${sha.slice(0, 16)}.parquet`,
  };

  test.each(Object.entries(KEYS))(
    "%s: anybody reads it, the publisher writes it, owners their own kinds",
    (kind, key) => {
      expect(key).toMatch(OBJECTS[kind as keyof typeof OBJECTS].pattern);
      expect(may("public", "nobody", "s3:GetObject", key)).toBe(true);
      expect(may("public", "PUB", "s3:PutObject", key)).toBe(true);
      for (const who of ["nobody", "PIPE"]) expect(may("public", who, "s3:PutObject", key)).toBe(false);
      expect(may("public", "OWN", "s3:PutObject", key)).toBe(/^(?:live|evidence)\//.test(key));
      expect(may("public", "SELL", "s3:PutObject", key)).toBe(key.startsWith("call/"));
      for (const who of ["nobody", "PIPE", "OWN", "SELL"])
        expect(may("public", who, "s3:DeleteObject", key)).toBe(false);
      const expires = /\.p\/|^live\/|^index\/table\//.test(key);
      expect(may("public", "PUB", "s3:DeleteObject", key)).toBe(expires);
    },
  );

  test("what is not public is read by nobody, and the private bucket by the pipeline alone", () => {
    const keys = [
      "generation/00000000000000000001",
      "runs/00000000000000000001",
      "staging/ab",
      "salts/2026-11-01",
      "x",
    ];
    const commit = "lake/1/asks/0/commit/00000000000000000001.json";
    for (const key of [...keys, commit, "lake/1/asks/0/data/0-9-abcdef01.parquet"]) {
      expect(may("public", "nobody", "s3:GetObject", key)).toBe(false);
      expect(may("public", "PUB", "s3:PutObject", key)).toBe(false);
      expect(may("public", "OWN", "s3:PutObject", key)).toBe(false);
      for (const who of ["nobody", "PUB", "OWN"]) {
        for (const action of ["s3:GetObject", "s3:PutObject"]) expect(may("private", who, action, key)).toBe(false);
      }
      expect(may("private", "PIPE", "s3:PutObject", key)).toBe(true);
      expect(may("private", "PIPE", "s3:DeleteObject", key)).toBe(key.endsWith(".parquet"));
    }
    expect(of("private").every(({ Principal }) => Principal !== "*")).toBe(true);
  });

  test("what bought calls hold is read, written and removed by the selling replicas alone, and goes by itself in the end", () => {
    const key = objectKey({ day: "2026-11-01", order: `ord_${"0".repeat(26)}`, leg: 0, kind: "answer" });
    const body = `seen/2026-11-01/20261101-${"0".repeat(26)}`;
    for (const action of ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]) {
      for (const one of [key, body]) expect(may("orders", "SELL", action, one)).toBe(true);
      expect(may("orders", "SELL", action, "elsewhere/x")).toBe(false);
      for (const who of ["nobody", "PUB", "OWN", "PIPE"]) expect(may("orders", who, action, key)).toBe(false);
      for (const which of ["public", "private"] as const) expect(may(which, "SELL", action, "runs/1")).toBe(false);
    }
    expect(of("orders").every(({ Principal }) => Principal !== "*")).toBe(true);
    const daysOf = (which: "public" | "private" | "orders", keptDays: number) =>
      lifecycleOf(which, { keptDays }).Rules.map((rule: { Expiration?: { Days: number } }) => rule.Expiration?.Days);
    expect([daysOf("orders", SELL.answers_kept_days), daysOf("orders", 7)]).toEqual([
      [32, 32, undefined],
      [9, 32, undefined],
    ]);
    expect([daysOf("public", 30), daysOf("private", 30)]).toEqual([[undefined], [undefined]]);
    expect(lifecycleOf("orders", {}).Rules[0].Expiration.Days).toBe(SELL.answers_kept_days + 2);
    expect(key.startsWith(lifecycleOf("orders", {}).Rules[0].Filter.Prefix)).toBe(true);
    expect(body.startsWith(lifecycleOf("orders", {}).Rules[1].Filter.Prefix)).toBe(true);
    expect(lifecycleOf("orders", {}).Rules[1].Expiration.Days).toBe(KEPT_DAYS + 2);
  });

  test("without a seller no statement names one", () => {
    const { seller: _, ...others } = names;
    expect(policyOf("public", others)).not.toMatch(/SELL|call\/\*"\]/);
    expect(JSON.parse(policyOf("public", names)).Statement).toHaveLength(
      JSON.parse(policyOf("public", others)).Statement.length + 1,
    );
  });
});

test("create-topics.sh declares what the log is refused without, for every topic", () => {
  const fake = join(dir, "kafka-topics.sh");
  writeFileSync(fake, `#!/bin/sh\nprintf '%s\\n' "$*" >> ${dir}/asked\n`);
  chmodSync(fake, 0o755);
  const script = join(DEPLOY, "kafka/create-topics.sh");
  const run = (...args: string[]) =>
    spawnSync("sh", [script, ...args], { env: { ...process.env, KAFKA_TOPICS: fake }, encoding: "utf8" });
  expect(run("b:9092", "ts", "8", "--command-config", "/x").status).toBe(0);
  const asked = readFileSync(join(dir, "asked"), "utf8").trim().split("\n");
  const topicIn = (line: string): string => /--topic (\S+)/.exec(line)![1]!;
  expect(asked.map(topicIn).sort()).toEqual([...TOPICS, "log"].map((topic) => `ts.${topic}`).sort());
  for (const line of asked) {
    for (const [name, value] of Object.entries(TOPIC_CONFIG)) expect(line).toContain(`--config ${name}=${value}`);
    expect(line).toContain("--replication-factor 3 --config min.insync.replicas=2");
    expect(line).toContain(`--partitions ${topicIn(line) === "ts.log" ? 1 : 8} `);
    expect(line).toContain("--command-config /x");
    const keeps = [...PERMANENT_TOPICS, "log"].includes(topicIn(line).slice("ts.".length) as "log");
    expect(line).toContain(`--config retention.ms=${keeps ? "-1 --config retention.bytes=-1" : "1209600000"}`);
  }
  expect(run("b:9092", "ts", "3").status).toBe(2);
  expect(run("b:9092").status).toBe(2);
});

test("no file of the deployment has a secret in it, not even one to change", () => {
  const files = readdirSync(DEPLOY, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  expect(files.length).toBeGreaterThan(20);
  const given: string[] = [];
  for (const file of files) {
    const text = readFileSync(file, "utf8");
    for (const [line, name, value] of text.matchAll(
      /^[ \t]*(?:ENV |-[ \t]*)?([A-Z][A-Z0-9_]*)[ \t]*[:=][ \t]*(\S.*)$/gm,
    )) {
      if (SECRET.test(name!) && !/^"?\$\{\w+:\?/.test(value!)) given.push(`${file}: ${line}`);
    }
    // `${A_SECRET:-default}`, and the words that such defaults are made of.
    for (const [whole, name] of text.matchAll(/\$\{(\w+):?[-=][^}]*\}/g))
      if (SECRET.test(name!)) given.push(`${file}: ${whole}`);
    for (const [word] of text.matchAll(/change-?me|hunter2|p[a]ssw0rd/gi)) given.push(`${file}: ${word}`);
  }
  expect(given).toEqual([]);
});

test("what stands before the replicas says who asks, and lets nobody else say it", () => {
  const conf = readFileSync(join(DEPLOY, "nginx-service.conf"), "utf8").replaceAll(/#.*/g, "");
  const passed = conf
    .split("location ")
    .slice(1)
    .filter((block) => block.includes("proxy_pass"));
  expect(passed.length).toBeGreaterThan(0);
  for (const block of passed) {
    expect(block.match(/proxy_set_header X-Forwarded-For .*;/g)).toEqual([
      "proxy_set_header X-Forwarded-For $remote_addr;",
    ]);
    expect(block).toContain('proxy_set_header Forwarded "";');
  }
  // What a client sent stands in neither of these; in these it would.
  expect(conf).not.toMatch(/\$proxy_add_x_forwarded_for|\$http_x_forwarded_for|\$http_forwarded/);
});

test("nginx waits longer than the service does, and takes no status of it for a failure of a replica", () => {
  const conf = readFileSync(join(DEPLOY, "nginx-service.conf"), "utf8").replaceAll(/#.*/g, "");
  expect(conf.match(/proxy_next_upstream .*;/g)).toEqual(["proxy_next_upstream error timeout;"]);
  const waits = [...conf.matchAll(/proxy_read_timeout (\d+)s;/g)].map(([, seconds]) => Number(seconds) * 1000);
  expect(waits.length).toBeGreaterThan(0);
  for (const ms of waits) expect(ms).toBeGreaterThan(SILENCE_MS);
});

test("nginx takes the front of the service", () => {
  if (spawnSync("nginx", ["-v"]).error) {
    process.stdout.write("nginx is not here: nginx-service.conf was not tried\n");
    return;
  }
  mkdirSync(join(dir, "nginx"));
  const conf = readFileSync(join(DEPLOY, "nginx-service.conf"), "utf8").replace("replica:8402", "127.0.0.1:8402");
  writeFileSync(join(dir, "nginx/nginx.conf"), `pid ${dir}/nginx/pid;\n${conf}`);
  const out = execFileSync("nginx", ["-t", "-p", join(dir, "nginx"), "-c", join(dir, "nginx/nginx.conf")], {
    stdio: "pipe",
  });
  expect(String(out)).toBe("");
});
