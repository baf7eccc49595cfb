import { join } from "node:path";
import { describe } from "vitest";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type ArchiveEngine, archiveStory, type Share } from "./archive-story.ts";
import { PARTITIONS } from "./records.ts";

/** Processes of a test that deal the partitions out among themselves. */
function sharing(): Pick<ArchiveEngine, "join" | "leave"> {
  const members: (Share & { parts: number[] })[] = [];
  const deal = (): void => {
    for (const member of members) member.parts = [];
    for (let part = 0; part < PARTITIONS; part++) members[part % members.length]!.parts.push(part);
  };
  return {
    join: async (count) => {
      const joined = Array.from({ length: count }, () => ({
        parts: [] as number[],
        held() {
          return [...this.parts];
        },
        heard: true,
        onChange: () => () => undefined,
      }));
      members.push(...joined);
      deal();
      return joined;
    },
    leave: async (one) => {
      const gone = members.find((member) => member === one)!;
      members.splice(members.indexOf(gone), 1);
      gone.parts = [];
      deal();
    },
  };
}

describe("the archive over the embedded log and directories, with four owners", () => {
  archiveStory(async (dir, clock) => {
    const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
    const privateStore = await openDirectoryStore(join(dir, "shared-private"));
    const publicStore = await openDirectoryStore(join(dir, "shared-public"));
    return { ...sharing(), log, stores: { privateStore, publicStore }, close: () => log.close() };
  }, PARTITIONS);
});
