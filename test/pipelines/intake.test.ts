import { describe, expect, test } from "vitest";
import { createLogger } from "../../infra/telemetry.ts";
import { NotRecorded } from "../../pipelines/1-observe/observer.ts";
import { Pipeline, type PipelineParts } from "../../pipelines/roles/pipeline.ts";

/** A pipeline whose observer does as it is told for each catalogue; what was called, in order. */
function intake(fails: Record<string, Error>) {
  const called: string[] = [];
  const observer = {
    intakeCatalogue: async (url: string) => {
      called.push(url);
      if (fails[url]) throw fails[url];
    },
    refreshSellers: async () => void called.push("sellers"),
  };
  const ingest = { pass: async () => void called.push("ingest") };
  const log = { id: "log", partitions: 1 };
  const parts = { observer, ingest, log, logger: createLogger("silent") } as unknown as PipelineParts;
  return { called, run: () => new Pipeline(parts).intake(["one", "two", "three"], true) };
}

describe("intake", () => {
  test("a catalogue that breaks our own code ends nobody else's", async () => {
    const { called, run } = intake({ two: new RangeError("Maximum call stack size exceeded") });
    await run();
    expect(called).toEqual(["one", "two", "three", "sellers", "ingest"]);
  });

  test("where nothing can be written all have ended", async () => {
    const { called, run } = intake({ two: new NotRecorded(["rec_1"], new Error("the disk is full")) });
    await expect(run()).rejects.toThrow(/the log did not take/);
    expect(called).toEqual(["one", "two"]);
  });
});
