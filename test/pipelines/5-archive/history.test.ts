import { afterAll, beforeAll, expect, test } from "vitest";
import { supersede } from "../../../pipelines/5-archive/supersede.ts";
import { dayOfManifest } from "../../../pipelines/record/archive.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../../../pipelines/record/vocabulary.ts";
import { expectNothingLost, probesIn } from "../../helpers/archive-rows.ts";
import { fc } from "../../helpers/histories.ts";
import { fileKeyOf, notOk, valuesAt } from "../../helpers/published.ts";
import { correction, handshake, later, listing, reinstated } from "../2-ingest/records.ts";
import { FaultInjected } from "../roles/injected-faults.ts";
import { toolProbe } from "./tools.ts";
import { ArchiveWorld, publisherOver, type Step } from "./world.ts";

const FIRST = "2026-11-10";
/** Days that one history adds; the next one goes on behind them, in the same record. */
const DAYS = 3;
const HISTORIES = 4;
const STEPS: Step[] = ["taken out", "looked", "written", "made", "packed", "put", "read back", "signed", "published"];

const minute = fc.integer({ min: 0, max: 1_439 });
const name = fc.constantFrom("a", "b", "c");
const command = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("probe" as const),
      tool: fc.boolean(),
      name,
      day: fc.nat(DAYS - 1),
      minute,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("late" as const), tool: fc.boolean(), name, day: fc.nat(5), minute }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("correct" as const), which: fc.nat(), all: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reinstate" as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("archive" as const),
      upto: fc.nat(DAYS - 1),
      dies: fc.option(fc.constantFrom(...STEPS)),
      rows: fc.constantFrom(1, 2, 1_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("rebuild" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("supersede" as const), which: fc.nat() }) },
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

let world: ArchiveWorld;
beforeAll(async () => {
  world = await ArchiveWorld.open();
});
afterAll(() => world.close());

/** What a reader who never heard of archives would say was observed: sets of ids. */
class Naive {
  readonly probes = new Map<string, { subject: ArchiveSubject; day: string; name: string }>();
  /** Records that never move. */
  readonly others = new Set<string>();
  /** Days before this one are old enough, as of the last archive that did not fail. */
  filedUntil = FIRST;
  now = `${addDays(FIRST, 110)}T00:00:00.000Z`;
  base = FIRST;
  corrections: { id: string; name: string }[] = [];

  idsOf(where: (subject: ArchiveSubject, day: string) => boolean): string[] {
    return [...this.probes]
      .filter(([, { subject, day }]) => where(subject, day))
      .map(([id]) => id)
      .sort();
  }
}
const naive = new Naive();

async function probe(tool: boolean, of: string, day: string, at: number): Promise<void> {
  const time = later(`${day}T00:00:00.000Z`, at * 60_000);
  const record = tool ? toolProbe(of, time) : handshake(of, time);
  naive.probes.set(record.eventId, { subject: tool ? "mcp_probes" : "liveness_probes", day, name: of });
  await world.ingest.append(record);
}

async function run(step: Command): Promise<void> {
  switch (step.do) {
    case "probe":
      return probe(step.tool, step.name, addDays(naive.base, step.day), step.minute);
    case "late": {
      const day = addDays(naive.base, -step.day);
      return probe(step.tool, step.name, day < FIRST ? FIRST : day, step.minute);
    }
    case "correct": {
      const probes = [...naive.probes].filter(([, { subject }]) => subject === "liveness_probes");
      const [id, { name: of }] = probes[step.which % probes.length]!;
      const told = correction(of, later(naive.now, naive.others.size), {
        id: `cor-${naive.others.size}`,
        record_id: step.all ? null : id,
      });
      naive.others.add(told.eventId);
      naive.corrections.push({ id: `cor-${naive.others.size - 1}`, name: of });
      return world.ingest.append(told);
    }
    case "reinstate": {
      const taken = naive.corrections.pop();
      if (!taken) return;
      const told = reinstated(taken.name, later(naive.now, naive.others.size), taken.id);
      naive.others.add(told.eventId);
      return world.ingest.append(told);
    }
    case "archive":
      return archive(step.upto, step.dies, step.rows);
    case "rebuild":
      return void (await world.ingest.ingest.rebuild());
    case "supersede": {
      // Every file is what the segments say, so none of them may be replaced.
      const { archive: fold } = await world.publisher.current();
      const files = [...fold.files.values()].filter(({ manifest }) => manifest.rows > 0);
      const file = files[step.which % Math.max(files.length, 1)];
      if (!file) return;
      const parts = { ...world.archiveParts(), logId: world.ingest.log.id };
      const said = await supersede(parts, file.manifest.id, "drawn").catch((error: unknown) => error);
      expect(said).toMatchObject({ code: "already" });
      expect(String(said)).toMatch(/comes out with the same bytes/);
    }
  }
}

/** The archive's job when days up to this one are old enough; it may die, and then another process looks later. */
async function archive(upto: number, dies: Step | null, rowsAFile: number): Promise<void> {
  const at = `${addDays(naive.base, 111 + upto)}T00:00:00.000Z`;
  if (at > naive.now) naive.now = at;
  const { publicStore, ingest } = world;
  const publisher = publisherOver(ingest, publicStore, { privateStore: ingest.store });
  const onStep = (step: Step) => {
    if (step === dies) throw new FaultInjected(step);
  };
  try {
    await world.archive(naive.now, { onStep, rowsPerFile: rowsAFile, ...(dies ? { publisher } : {}) });
    naive.filedUntil = addDays(naive.now.slice(0, 10), -110);
    await settled();
  } catch (error) {
    if (!(error instanceof FaultInjected)) throw error;
  }
}

interface Where {
  lake: string[];
  /** By subject and day, the ids of its standing files, ascending. */
  files: Map<string, string[]>;
}

async function where(): Promise<Where> {
  await world.ingest.ingest.pass();
  const files = new Map<string, string[]>();
  for (const leaf of await world.filed()) {
    const key = `${leaf.manifest.subject} ${dayOfManifest(leaf.manifest)}`;
    const ids = (await valuesAt(world.publicStore, fileKeyOf(leaf))).map(({ record_id }) => String(record_id));
    expect(ids).toHaveLength(leaf.manifest.rows);
    files.set(key, [...(files.get(key) ?? []), ...ids].sort());
  }
  return { lake: (await probesIn([world.ingest.lake])).sort(), files };
}

/** At any moment: no row is lost, none is twice in files, each is where its subject and day are; what never moves is here. */
async function nothingLost(): Promise<void> {
  const { lake, files } = await where();
  expectNothingLost(
    { lake, files: [...files.values()].flat() },
    naive.idsOf(() => true),
  );
  for (const [key, ids] of files) {
    const own = new Set(naive.idsOf((subject, day) => `${subject} ${day}` === key));
    expect(ids.filter((id) => !own.has(id))).toEqual([]);
  }
  const stay = await world.ingest.lake.all<{ event_id: string }>(
    "SELECT event_id FROM event WHERE topic = 'corrections'",
  );
  expect(stay.map(({ event_id }) => event_id).sort()).toEqual([...naive.others].sort());
}

/** After a run of the job that did not fail: the days that are old enough are in files whole, the others in the lake. */
async function settled(): Promise<void> {
  const { lake, files } = await where();
  expect(lake).toEqual(naive.idsOf((_, day) => day >= naive.filedUntil));
  for (let day = FIRST; day < naive.filedUntil; day = addDays(day, 1)) {
    for (const subject of ARCHIVE_SUBJECTS) {
      const own = naive.idsOf((what, when) => what === subject && when === day);
      expect([`${subject} ${day}`, files.get(`${subject} ${day}`)]).toEqual([`${subject} ${day}`, own]);
    }
  }
  const empty = (await world.filed()).filter(({ manifest }) => manifest.rows === 0);
  expect(new Set(empty.map(({ manifest }) => `${manifest.subject} ${manifest.from}`)).size).toBe(empty.length);
  const [total] = await world.ingest.lake.all<{ n: number }>("SELECT coalesce(sum(probes), 0)::INTEGER AS n FROM seen");
  expect(total!.n).toBe(naive.probes.size);
}

test("drawn histories of days, late rows, corrections, deaths and rebuilds: every row is in the lake or in one file", async () => {
  const start = listing("a", `${FIRST}T00:00:00.000Z`);
  await world.ingest.append(start);
  await probe(false, "a", FIRST, 0);
  const history = fc.array(command, { minLength: 6, maxLength: 16 });
  const property = fc.asyncProperty(history, async (steps) => {
    for (const step of steps) {
      await run(step);
      await nothingLost();
    }
    await archive(DAYS - 1, null, 1_000);
    await nothingLost();
    naive.base = addDays(naive.base, DAYS);
  });
  // One record grows through all of them: a history that failed cannot be tried again over what it left.
  await fc.assert(property, { numRuns: HISTORIES, endOnFailure: true, verbose: true });
  await world.prove();
  expect(notOk(await world.audit()).filter(({ result }) => result === "broken")).toEqual([]);
});
