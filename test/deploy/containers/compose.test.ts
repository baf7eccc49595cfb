import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import { type Container, ended, openProject, type Project } from "./compose.ts";
import { buildImage, IMAGE, inspectImage } from "./our-image.ts";
import { type Outside, openOutside } from "./outside.ts";
import { attempt, configure, env } from "./podman.ts";
import { makeStandIns } from "./stand-ins.ts";

/**
 * What is deployed, started as docs/deploy.md says: our image out of its Dockerfile, and compose.yaml as it is under
 * Docker Compose, with nothing of ours but a filled-in env.example; create-topics.sh, nginx-service.conf and the policies
 * of the buckets are what its services run. Outside are a node that says it is Base and sellers.
 *
 * Paid calls begin with a block of six hours, which a test does not wait for: a second compose file, of this test, has
 * every role of ours live at the beginning of the next block, as node and control address do. The S3 server has this
 * machine's clock: the SDK measures the difference and signs by the server's.
 */
const ROOT = resolve(import.meta.dirname, "../../..");
const COMPOSE = join(ROOT, "infra/deploy/compose.yaml");
const SHIFTED_DATE = join(ROOT, "test/helpers/shifted-date.mjs");
const PROJECT = "touchstone-test";
const FRONT = "http://127.0.0.1:8080";
const BASE_URL = "http://touchstone.test:8080";
/** One-time services: they end, and with 0. */
const ONCE = ["topics", "users", "buckets", "keys", "key-folders", "witness-keys"];
const OBSERVERS = ["observer-1", "observer-2"];
const WITNESSES = ["witness-1", "witness-2"];
const ROLES = [...OBSERVERS, "owner", "publisher", "replica-1", "replica-2", ...WITNESSES];
const BROKERS = ["kafka1", "kafka2", "kafka3"];
/** A quarter of all calls is blind, and each of those has a wallet to itself. */
const BLIND = 12;
/** Waits have bounds that only a hang reaches; SIGKILL follows a grace period at once. */
const PATIENCE_MS = 600_000;
/** Of two owners one is left out: this machine has two cores for twenty-one containers. */
const SCALE = ["--scale", "owner=1"];

let dir: string;
let outside: Outside;
let project: Project;
let aheadMs: number;
const began = performance.now();
const say = (text: string): void => {
  process.stdout.write(`[${Math.round((performance.now() - began) / 1000)} s] ${text}\n`);
};

/** env.example with a value for each line that has none. */
function filledIn(values: Readonly<Record<string, string>>): string {
  const example = readFileSync(join(ROOT, "infra/deploy/env.example"), "utf8");
  const lines = example.split("\n").map((line) => {
    const [, name, given] = /^([A-Z0-9_]+)=(.*)$/.exec(line) ?? [];
    if (name === undefined) return line;
    const value = values[name] ?? given;
    if (!value) throw new Error(`nothing says what ${name} is`);
    return `${name}='${value}'`;
  });
  return lines.join("\n");
}

/** What moves the clock of a process of ours, in its environment and among what is mounted. */
const clockOf = (aheadMs: number) => ({
  environment: { NODE_OPTIONS: "--import=/shifted-date.mjs", SHIFTED_DATE_MS: String(aheadMs) },
  volumes: [`${SHIFTED_DATE}:/shifted-date.mjs:ro`],
});

/** The second compose file: the clock of each role, and brokers that take records of a clock that is hours ahead. */
function otherClock(aheadMs: number): string {
  const broker = { environment: { KAFKA_LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: "86400000" } };
  const services = [...ROLES.map((name) => [name, clockOf(aheadMs)]), ...BROKERS.map((name) => [name, broker])];
  return JSON.stringify({ services: Object.fromEntries(services) });
}

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "deploy-"));
  configure(dir);
  const { services } = parse(readFileSync(COMPOSE, "utf8"), { merge: true }) as {
    services: Record<string, { image: string }>;
  };
  const others = [...new Set(Object.values(services).map(({ image }) => image))].filter((image) => image !== IMAGE);
  for (const line of await makeStandIns(dir, ["node:22-bookworm-slim", ...others])) say(line);
  await buildImage(ROOT, "node:22-bookworm-slim");
  say(`the image is built, ${Math.round(inspectImage().Size / 1e6)} MB`);
  outside = await openOutside();
  const values = {
    ...{ S3_ROOT_SECRET: "root-of-the-store", PIPELINE_SECRET: "pipeline-secret-1" },
    ...{ PUBLISHER_SECRET: "publisher-secret-1", OWNER_SECRET: "owner-secret-1" },
    ...{ NODE_IMAGE: "node:22-bookworm-slim", BASE_URL, RPC_URL: outside.rpcUrl },
    ...{ CONTROL_URLS: JSON.stringify([outside.control]), CATALOGUES: JSON.stringify([outside.catalogue]) },
  };
  writeFileSync(join(dir, ".env"), filledIn(values), { mode: 0o600 });
  const second = join(dir, "clock.json");
  project = await openProject(dir, PROJECT, [COMPOSE, second], join(dir, ".env"));
  aheadMs = await outside.toNextBlock();
  writeFileSync(second, otherClock(aheadMs));
  say(`every role lives at ${new Date(Date.now() + aheadMs).toISOString()}, the beginning of a block`);
}, 1_800_000);

afterAll(async () => {
  await project?.close();
  await outside?.close();
  rmSync(dir, { recursive: true, force: true });
});

const named = (service: string): Container[] => project.containers().filter((one) => one.service === service);
/** What every container said last, for an error. */
const lastWords = (): string =>
  project
    .containers()
    .map(({ Id, service }) => {
      const { stdout, stderr } = attempt("podman", ["logs", "--tail", "8", Id]);
      return `${service}:\n${stdout}${stderr}`;
    })
    .join("\n");

/** Waits. @throws with what `missing` says when the bound is reached */
async function until(what: string, missing: () => Promise<string | null> | string | null): Promise<void> {
  const from = performance.now();
  for (let last: string | null = null; ; await sleep(1_000)) {
    last = await missing();
    if (last === null) return say(`${what}: after ${Math.round((performance.now() - from) / 1000)} s`);
    if (performance.now() - from > PATIENCE_MS) throw new Error(`never: ${what}; ${last}\n${lastWords()}`);
  }
}

/** Which containers are not as they should be: running and healthy, or at an end with 0. */
function unwell(): string | null {
  const all = project.containers();
  const bad = all.filter(({ service, State }) =>
    ONCE.includes(service)
      ? State.Status !== "exited" || State.ExitCode !== 0
      : !State.Running || State.Health?.Status !== "healthy",
  );
  const said = bad.map(({ service, State }) => `${service} ${State.Status} ${State.ExitCode} ${State.Health?.Status}`);
  return bad.length > 0 || all.length === 0 ? said.join(", ") || "nothing is there" : null;
}

/** What nginx answers to a question about an endpoint. */
async function check(url: string): Promise<{ status: number; body: Record<string, unknown> } | null> {
  const answered = await fetch(`${FRONT}/v1/check?url=${encodeURIComponent(url)}`).catch(() => null);
  if (answered === null) return null;
  return { status: answered.status, body: (await answered.json().catch(() => ({}))) as Record<string, unknown> };
}

test("wallets are made in volumes that stay, one for each observer, and funded", async () => {
  const addresses: string[] = [];
  for (const service of OBSERVERS) {
    const making = ["wallets", "new", "--blind", String(BLIND), "--json"];
    const { code, stdout, stderr } = await project.once(service, ...making);
    expect(code, stderr).toBe(0);
    const found = [...new Set(stdout.match(/0x[0-9a-fA-F]{40}/g) ?? [])];
    expect(found.length).toBeGreaterThan(BLIND);
    // The container is gone; another one finds them.
    const again = await project.once(service, "wallets", "list", "--json");
    for (const address of found.slice(0, 3)) expect(again.stdout.toLowerCase()).toContain(address.toLowerCase());
    addresses.push(...found);
  }
  expect(new Set(addresses.map((one) => one.toLowerCase())).size).toBe(addresses.length);
  await outside.fund(addresses);
}, 600_000);

test("docker compose up: one-time services end with 0, every other container is healthy", async () => {
  const up = await project.compose("up", "--detach", "--no-build", ...SCALE);
  expect(up.code, up.stderr).toBe(0);
  say("docker compose up came back");
  await until("every container is healthy", unwell);
}, 1_200_000);

// One of the observers reads the catalogue, whichever draws the plan.
test("the plan of the first day covers every endpoint, for each observer", async () => {
  const said = /"endpoints":(\d+),"paid_endpoints":(\d+).*the calls of a day begin/;
  await until("each observer begins with the calls of the day", () => {
    const begun = OBSERVERS.flatMap(named).map(({ Id }) => said.exec(attempt("podman", ["logs", Id]).stderr));
    if (begun.length !== OBSERVERS.length || begun.includes(null)) return "one of them has not";
    for (const counts of begun) expect(counts!.slice(1).map(Number)).toEqual([outside.endpoints, outside.endpoints]);
    return null;
  });
}, 1_200_000);

test("sellers are asked, their cards are published, and nginx answers for them", async () => {
  const asked = () => outside.sellers.filter(({ seen }) => seen.asked > 0);
  await until("a seller was asked", () => (asked().length > 0 ? null : "nobody was asked"));
  const { origin } = asked()[0]!;
  await until("a check is answered from a published card", async () => {
    for (let n = 0; n < 40; n++) {
      const said = await check(`${origin}/sum/${n}`);
      if (said?.status === 200 && said.body.scorecard) return null;
    }
    return "no card yet";
  });
}, 1_200_000);

test("both witnesses have cosigned what nginx hands on", async () => {
  await until("a checkpoint has both cosignatures", async () => {
    const note = await fetch(`${FRONT}/checkpoint`).then(async (answer) => (answer.ok ? answer.text() : ""));
    const lacks = WITNESSES.filter((name) => !note.includes(`\n\u2014 ${name}.compose.example `));
    return lacks.length === 0 ? null : `no cosignature of ${lacks.join(", ")}`;
  });
}, 1_200_000);

test("a seller is paid, the chain has the settlement, and nginx answers with a card that counts the call", async () => {
  const paid = () =>
    outside.sellers.flatMap(({ seen }) => seen.urls.map((url, n) => ({ url, transaction: seen.paid[n]! })));
  await until("a seller was paid", () => (paid().length > 0 ? null : "nobody was paid"));
  expect(await outside.settled(paid()[0]!.transaction)).toBe(true);
  await until("a check counts a paid call", async () => {
    const said = [];
    for (const { url } of paid().slice(0, 20)) said.push((await check(url))?.body);
    const counts = said.find((body) => body?.tier === "DELIVERY_VERIFIED");
    if (counts) say(`answered: ${counts.why}`);
    return counts ? null : `${paid().length} calls were paid, and a check says ${said[0]?.why}`;
  });
}, 1_200_000);

/**
 * Kills, round by round. What dies in one round are services that do without each other; of a service that is named
 * twice another container dies each time.
 */
const ROUNDS = [
  ["s3"],
  ["kafka1", "witness-1"],
  ["kafka2", "replica-1"],
  ["kafka3", "publisher"],
  ["publisher", "witness-2"],
  ["observer-1", "replica-2"],
  ["observer-2", "nginx"],
  ["owner"],
];

test("SIGKILL of each container, round by round: it comes back, and nginx answers meanwhile or soon again", async () => {
  const lasting = project.containers().filter(({ service }) => !ONCE.includes(service));
  const stateOf = (id: string) => project.containers().find(({ Id }) => Id === id)!.State;
  const killed = new Set<string>();
  for (const round of ROUNDS) {
    const victims = round.map((service) => lasting.find((one) => one.service === service && !killed.has(one.Id))!);
    const before = victims.map(({ Id }) => stateOf(Id).Pid);
    // 0 would be this process's group.
    expect(before.filter((pid) => !(pid > 1))).toEqual([]);
    // As the kernel does it, past everybody who would remember that it was asked for.
    for (const pid of before) process.kill(pid, "SIGKILL");
    for (const [k, { Id, service }] of victims.entries()) {
      killed.add(Id);
      await until(`${service} is back`, () => {
        const { Running, Pid, Health, Status } = stateOf(Id);
        return Running && Pid !== before[k] && Health?.Status === "healthy" ? null : Status;
      });
    }
    await until(`nginx answers after ${round.join(" and ")}`, async () =>
      (await check(outside.sellers[0]!.url))?.status === 200 ? null : "no",
    );
  }
  expect([...killed].sort()).toEqual(lasting.map(({ Id }) => Id).sort());
  await until("every container is healthy", unwell);
}, 1_800_000);

test("the public record is proven from its first leaf", async () => {
  // Not synchronously: what answers for the outside is in this process.
  const { environment, volumes } = clockOf(aheadMs);
  const clock = [
    ...Object.entries(environment).flatMap(([name, value]) => ["--env", `${name}=${value}`]),
    ...volumes.flatMap((volume) => ["--volume", volume]),
  ];
  const { code, stdout, stderr } = await ended(
    spawn("podman", ["run", "--rm", "--network", "host", ...clock, IMAGE, "audit", FRONT], { env }),
  );
  expect(code, stdout + stderr).toBe(0);
  expect(stdout).toMatch(/^proven: /m);
}, 600_000);

test("docker compose stop: each role ends by SIGTERM, with 0, inside of its grace period", async () => {
  const begun = Date.now();
  const { code, stderr } = await project.compose("stop");
  expect(code, stderr).toBe(0);
  say(`docker compose stop took ${Math.round((Date.now() - begun) / 1000)} s`);
  const ends = project.containers().filter(({ service }) => !ONCE.includes(service));
  for (const { Id, service, State } of ends) {
    const afterS = Math.round((Date.parse(State.FinishedAt) - begun) / 1000);
    say(`${service} ended with ${State.ExitCode} after ${afterS} s`);
    if (afterS > 15 && ROLES.includes(service)) say(attempt("podman", ["logs", "--tail", "12", Id]).stderr);
  }
  const codes = (ours: boolean) =>
    ends
      .filter(({ service }) => /^(?:observer|owner|publisher|replica|witness)/.test(service) === ours)
      .map(({ service, State }) => [service, State.ExitCode]);
  expect(codes(true).length).toBeGreaterThan(6);
  expect(codes(true).filter(([, code]) => code !== 0)).toEqual([]);
  // A broker ends with 143: Java's exit code after SIGTERM. It first waits, up to five minutes, until a majority of the
  // controllers lets it go. Where the two others have left before it was let go, no majority is left, and Docker kills it when
  // its grace period ends. Store and proxy are not ours, and a kill harms nothing that they hold.
  const brokers = codes(false).filter(([service]) => String(service).startsWith("kafka"));
  const ended143 = brokers.filter(([, code]) => code === 143);
  const killed = brokers.filter(([, code]) => code === 137);
  expect([...ended143, ...killed]).toHaveLength(3);
  expect(killed.length).toBeLessThanOrEqual(1);
}, 600_000);
