/**
 * A process that ingests, grades and publishes over real engines until it is killed. Argument, as JSON: where the engines
 * are, its place, and the record's time when it begins. It says `ready`, then a line for every turn.
 */
import { parseKafkaAddress } from "../../infra/log/kafka/address.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { openS3Store, type S3Bucket } from "../../infra/store/s3/s3.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import { jobOf, openProcess, ProcessClock } from "../helpers/role-process.ts";
import type { Who } from "../helpers/schedule.ts";

export interface ChildPlace {
  dir: string;
  log: string;
  stores: { privateStore: S3Bucket; publicStore: S3Bucket };
  who: Who;
  start: string;
}

const place = JSON.parse(process.argv[2]!) as ChildPlace;
const began = performance.now();
const clock = new ProcessClock(() => Date.parse(place.start) + Math.floor(performance.now() - began));
const bed = {
  dir: place.dir,
  openLog: () => openKafkaLog(parseKafkaAddress(place.log), { ...LOG_TOPIC_OPTIONS, logger: createLogger("silent") }),
  openStores: async () => ({
    privateStore: await openS3Store(place.stores.privateStore, { probe: false }),
    publicStore: await openS3Store(place.stores.publicStore, { probe: false }),
  }),
  weather: () => undefined,
  clear: () => undefined,
};
const own = await openProcess(bed, place.who, clock);
process.stdout.write("ready\n");
for (let n = 0; ; n++) {
  const said = await jobOf(own, n % 4 === 3 ? "tidy" : "grade").then(
    () => "done",
    (error: Error) => `${error.name}: ${error.message}`,
  );
  process.stdout.write(`turn ${n} ${said}\n`);
}
