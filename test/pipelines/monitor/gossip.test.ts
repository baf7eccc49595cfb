import { createHash } from "node:crypto";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { createLogger } from "../../../infra/telemetry.ts";
import { CheckpointsPage, Peer } from "../../../pipelines/monitor/peers.ts";
import { proveEquivocation, readEquivocation } from "../../../pipelines/published/equivocation.ts";
import { serve } from "../../../serving/main.ts";
import { createMonitorApp } from "../../../serving/monitor-app.ts";
import { NOW, ORIGIN, PublicRecord } from "../../helpers/public-record.ts";
import { WatchedSource } from "../mirror/testbed.ts";
import { fill, folder, forkedPair, keys, listening, MonitorBed } from "./testbed.ts";

/** Monitors that exchange what they saw, over HTTP, and peers that lie, flood, or do not answer. */
const opened: { close(): Promise<unknown> }[] = [];
const keep = <T extends { close(): Promise<unknown> }>(one: T): T => {
  opened.push(one);
  return one;
};
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});
const bed = async () => keep(await MonitorBed.open());
const served = async ({ state }: MonitorBed, origin: string | null = ORIGIN) =>
  keep(await serve({ app: createMonitorApp(state, () => origin, createLogger("silent")), host: "127.0.0.1", port: 0 }));

test.each([
  ["of one size", 20, 20],
  ["of other sizes", 7, 90],
])("two monitors that each see one side, %s, both prove the fork", async (_, one, other) => {
  const records = (await forkedPair(30)).map(keep) as [PublicRecord, PublicRecord];
  await fill(records[0], "one", one);
  await fill(records[1], "other", other);
  const beds = [await bed(), await bed()] as const;
  const urls = [(await served(beds[0])).url, (await served(beds[1])).url] as const;
  const monitors = ([0, 1] as const).map((i) =>
    beds[i].monitor({ sources: [folder(records[i])], keys: keys(records[0]), peers: [new Peer(urls[1 - i]!)] }),
  );
  const rounds = [];
  for (const monitor of [...monitors, ...monitors]) rounds.push(await monitor.runRound());
  expect(rounds.slice(2).map(({ faults }) => faults[0]?.code)).toEqual(
    one === other ? ["fork", "fork"] : ["unproven", "fork"],
  );
  // The side that had fewer leaves has no tiles of the larger tree: its own growth proves the fork.
  if (one !== other) {
    await fill(records[0], "later", 200);
    expect((await monitors[0]!.runRound()).faults[0]?.code).toBe("fork");
  }
  for (const { files } of beds) {
    const [file] = await files.list("");
    const bytes = (await files.get(file!.key))!.bytes;
    expect(
      proveEquivocation(readEquivocation(JSON.parse(Buffer.from(bytes).toString())), [records[0].trust.log]),
    ).toBeTruthy();
  }
});

test("a log that a peer saw grow after our source answered was not rolled back", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 3);
  const [ours, theirs] = [await bed(), await bed()];
  const source = new WatchedSource(join(record.dir, "public"));
  source.shown.set("checkpoint", Buffer.from((await record.store.get("checkpoint"))!.bytes));
  const monitor = ours.monitor({
    ...{ sources: [source], keys: keys(record) },
    peers: [new Peer((await served(theirs)).url)],
  });
  await fill(record, "b", 2);
  await theirs.round({ sources: [folder(record)], keys: keys(record) });
  const round = await monitor.runRound();
  expect([round.faults, round.head?.size]).toEqual([[], 5]);
  // A source that goes on showing fewer leaves than were proven is one.
  expect((await monitor.runRound()).faults).toMatchObject([{ code: "rollback" }]);
});

test("pages are bounded, and a pull goes on where the last one ended", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 3);
  const [ours, theirs] = [await bed(), await bed()];
  await ours.round({ sources: [folder(record)], keys: keys(record) });
  const { size, root } = ours.state.readHead()!;
  // 450 texts of one head: extensions differ.
  for (let i = 0; i < 450; i++) {
    const note = record.note({ size, root }).toString().replace(/\n\n/, `\nx-${i}\n\n`);
    ours.state.keep(
      {
        digest: createHash("sha256").update(note).digest(),
        size,
        root,
        note: Buffer.from(note),
        source: "test",
        seenAt: NOW,
      },
      10_000,
    );
  }
  const { url } = await served(ours);
  const get = async (path: string) => CheckpointsPage.parse(await (await fetch(`${url}${path}`)).json());
  const newest = await get("/checkpoints");
  expect([newest.checkpoints.length, newest.checkpoints[0]?.n, newest.next]).toEqual([200, 451, null]);
  const second = await get(`/checkpoints?after=${(await get("/checkpoints?after=0")).next}`);
  expect([second.checkpoints[0]?.n, second.next]).toEqual([201, 400]);
  const hash = createHash("sha256").update(ORIGIN).digest("hex");
  expect((await get(`/${hash}/checkpoints?after=450`)).checkpoints.length).toBe(1);
  expect((await fetch(`${url}/${"0".repeat(64)}/checkpoints`)).status).toBe(404);
  expect((await fetch(`${url}/checkpoints?after=-1`)).status).toBe(400);
  expect(await (await fetch(url)).text()).toBe(`monitor of ${ORIGIN}: 3 leaves are proven\n`);
  // The changed texts have the signature of another text: the puller keeps the one that the log signed.
  const peer = new Peer(url);
  const round = await theirs.round({ sources: [folder(record)], keys: keys(record), peers: [peer] });
  expect([round.newCheckpoints, peer.droppedCheckpoints, round.faults, round.warnings.length]).toEqual([1, 9, [], 1]);
});

test.each([
  ["before", 0],
  ["between two pages of", 1],
])("a peer that gets a new memory %s a pull is read from its first checkpoint", async (_, pagesBefore) => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 3);
  const notes = Array.from({ length: 4 }, (_, i) =>
    record.note({ size: 1_000 + i, root: Buffer.alloc(32, i) }).toString(),
  );
  const memories = [notes.slice(0, 2), notes].map((kept, i) => ({ id: `memory ${i}`, kept }));
  const asked: string[] = [];
  let pagesLeft = 1;
  // One checkpoint a page.
  const { url } = keep(
    await listening((path) => {
      const after = Number(path.split("=")[1]);
      const { id, kept } = memories[pagesLeft-- > 0 ? 0 : 1]!;
      asked.push(`${id} after ${after}`);
      const checkpoints = kept
        .slice(after, after + 1)
        .map((note) => ({ n: after + 1, note, seen_at: NOW, verdict: "unproven" }));
      const next = after + 1 < kept.length ? after + 1 : null;
      return { status: 200, body: JSON.stringify({ log: ORIGIN, id, checkpoints, next }) };
    }),
  );
  const own = await bed();
  const monitor = own.monitor({ sources: [folder(record)], keys: keys(record), peers: [new Peer(url)] });
  if (pagesBefore === 0) {
    pagesLeft = 2;
    await monitor.runRound();
    expect(asked.splice(0)).toEqual(["memory 0 after 0", "memory 0 after 1"]);
  }
  await monitor.runRound();
  expect(asked).toEqual([
    ...(pagesBefore === 0 ? ["memory 1 after 2"] : ["memory 0 after 0", "memory 1 after 1"]),
    ...["memory 1 after 0", "memory 1 after 1", "memory 1 after 2", "memory 1 after 3"],
  ]);
  expect([own.state.count("unproven"), own.state.readPeer(url)]).toEqual([4, { id: "memory 1", after: 4 }]);
});

const LIES: [
  string,
  (record: PublicRecord, page: CheckpointsPage) => Promise<{ status: number; body?: string }>,
  RegExp,
][] = [
  ["answers 500", async () => ({ status: 500 }), /does not answer: it answered 500/],
  ["answers no JSON", async () => ({ status: 200, body: "<html>" }), /something else than checkpoints/],
  ["answers too much", async () => ({ status: 200, body: "x".repeat(9_000_000) }), /more than \d+ bytes/],
  [
    "follows another log",
    async (_, page) => ({ status: 200, body: JSON.stringify({ ...page, log: "x.example" }) }),
    /follows x\.example/,
  ],
  [
    "sends notes that nobody signed",
    async (record, page) => {
      const note = record
        .note({ size: 9, root: Buffer.alloc(32, 9) })
        .toString()
        .replace("\n9\n", "\n8\n");
      return {
        status: 200,
        body: JSON.stringify({ ...page, checkpoints: [{ n: 1, note, seen_at: NOW, verdict: "proven" }] }),
      };
    },
    /1 checkpoints that touchstone\.test did not sign/,
  ],
  [
    "sends notes of another key",
    async (_, page) => {
      const stranger = keep(await PublicRecord.open());
      const note = stranger.note({ size: 9, root: Buffer.alloc(32, 9) }).toString();
      const many = Array.from({ length: 200 }, (_, n) => ({
        n: n + 1,
        note,
        seen_at: NOW,
        verdict: "proven" as const,
      }));
      return { status: 200, body: JSON.stringify({ ...page, checkpoints: many, next: 200 }) };
    },
    /sends checkpoints that touchstone\.test did not sign/,
  ],
];
test.each(LIES)("a peer that %s is left alone for a while, and nothing of it is kept", async (_, lie, says) => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 3);
  let asked = 0;
  const page: CheckpointsPage = { log: ORIGIN, id: "peer", checkpoints: [], next: null };
  const answer = await lie(record, page);
  const { url } = keep(
    await listening(() => {
      asked++;
      return answer;
    }),
  );
  const own = await bed();
  const monitor = own.monitor({ sources: [folder(record)], keys: keys(record), peers: [new Peer(url)] });
  const round = await monitor.runRound();
  expect(round.warnings.map(({ message }) => message)).toEqual([expect.stringMatching(says)]);
  expect([round.newCheckpoints, round.faults, round.head?.size]).toEqual([1, [], 3]);
  const before = asked;
  await monitor.runRound();
  expect([asked, own.state.count("unproven")]).toEqual([before, 0]);
});

test("a peer that floods with what the log did sign fills its bound, and not the disk", async () => {
  const record = keep(await PublicRecord.open());
  await fill(record, "a", 3);
  let n = 0;
  const { url } = keep(
    await listening(() => {
      const checkpoints = Array.from({ length: 200 }, () => {
        n++;
        const note = record.note({ size: 1_000 + n, root: Buffer.alloc(32, n % 256) }).toString();
        return { n, note, seen_at: NOW, verdict: "unproven" };
      });
      return { status: 200, body: JSON.stringify({ log: ORIGIN, id: "flood", checkpoints, next: n }) };
    }),
  );
  const own = await bed();
  const monitor = own.monitor({ sources: [folder(record)], keys: keys(record), peers: [new Peer(url)] });
  const round = await monitor.runRound();
  expect([round.faults.map(({ code }) => code), round.head?.size]).toEqual([["unproven"], 3]);
  expect(round.warnings[0]?.message).toMatch(/1000 checkpoints are kept without a proof/);
  expect(own.state.count("unproven")).toBeGreaterThan(990);
  await fill(record, "b", 3);
  expect((await monitor.runRound()).head?.size).toBe(6);
});
