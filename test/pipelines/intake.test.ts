import { describe, expect, test } from "vitest";
import { FixedClock, systemClock } from "../../infra/clock.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { NotConfirmed } from "../../pipelines/1-observe/observer.ts";
import { Pipeline, type PipelineParts } from "../../pipelines/roles/pipeline.ts";

/** A pipeline whose observer does as it is told for each catalogue; what was called, in order. */
function intake(
  fails: Record<string, Error | Promise<void>>,
  clock: PipelineParts["clock"] = new FixedClock("2026-03-01"),
) {
  const called: string[] = [];
  const observer = {
    intakeCatalogue: async (url: string) => {
      called.push(url);
      if (fails[url] instanceof Error) throw fails[url];
      await fails[url];
    },
    unfinishedCatalogues: (all: readonly string[]) => all.filter((one) => one === "two"),
    refreshSellers: async () => void called.push("sellers"),
  };
  const ingest = { pass: async () => void called.push("ingest") };
  const log = { id: "log", partitions: 1 };
  const parts = { observer, ingest, log, clock, logger: createLogger("silent") } as unknown as PipelineParts;
  const pipeline = new Pipeline(parts);
  const all = ["one", "two", "three"];
  return { called, run: () => pipeline.intake(all, true), resume: () => pipeline.resumeIntake(all) };
}

describe("intake", () => {
  test("a catalogue that breaks our own code ends nobody else's", async () => {
    const { called, run } = intake({ two: new RangeError("Maximum call stack size exceeded") });
    await run();
    expect(called).toEqual(["one", "two", "three", "sellers", "ingest"]);
  });

  test("one that keeps us waiting holds up no other one", async () => {
    let release = (): void => undefined;
    const hanging = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { called, run } = intake({ one: hanging }, systemClock);
    const done = run();
    await expect.poll(() => called).toEqual(["one", "two", "three"]);
    release();
    await done;
    expect(called).toEqual(["one", "two", "three", "sellers", "ingest"]);
  });

  test("only those that broke off are gone on with, and no seller besides", async () => {
    const { called, resume } = intake({});
    expect(await resume()).toBe(1);
    expect(called).toEqual(["two", "ingest"]);
  });

  test("where nothing can be written all have ended", async () => {
    const { called, run } = intake({ two: new NotConfirmed(["rec_1"], new Error("the disk is full")) });
    await expect(run()).rejects.toThrow(/the log did not confirm/);
    expect(called).toEqual(["one", "two"]);
  });
});
