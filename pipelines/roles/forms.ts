import { LOG_FORMAT } from "../../infra/log/log-file.ts";
import { LAKE_FORM } from "../2-ingest/load.ts";
import { WatcherTable } from "../6-notify/watcher-table.ts";
import { OrderTable } from "../orders/order-table.ts";
import { ENVELOPE_VERSION } from "../record/envelope.ts";
import { STORE_FORM } from "./record-identity.ts";

/** A private storage format, which no other program reads, and how other versions of it are handled. */
export interface PrivateFormat {
  /** Name of the data that have this format. */
  what: string;
  /** Where the data are stored: a path in the data folder (or in the bucket of that store), or a topic. */
  where: string;
  /** The member that holds the format's version, and the value that this release writes. */
  number: { member: string; now: number | string };
  /** How data of an older version are converted. */
  older: string;
  /** What happens when data of a newer version are found. Such data are never changed. */
  newer: string;
}

const REFUSED_AT_START = "refused at start, code 7";
const REWRITTEN_BY_OWNER =
  "written anew by the owner from its lake; until all owners have done so, the publisher's jobs that read them fail";
const REBUILT_FROM_LOG = "passed over, and its topic folded anew from the log";

/**
 * The private formats of log, stores, lake (the database of the log's rows) and folds (saved results of reading a
 * topic). Wallets, keyring, settings, register and mirror state have no version number yet. Published formats
 * (leaves, tiles, cards, files of archive and evidence) are not listed, since they never change. A change of a format
 * must raise the format's number and describe here how older data are converted; otherwise
 * test/pipelines/roles/forms.test.ts fails.
 */
export const PRIVATE_FORMATS: readonly PrivateFormat[] = [
  {
    what: "log of one machine",
    where: "log/log.sqlite",
    number: { member: "PRAGMA user_version", now: LOG_FORMAT },
    older: "touchstone migrate, in one transaction (from 1 on)",
    newer: REFUSED_AT_START,
  },
  {
    what: "identity of a log in Kafka",
    where: "topic PREFIX.log",
    number: { member: "v", now: 1 },
    older: "there is none",
    newer: REFUSED_AT_START,
  },
  {
    what: "records of the log",
    where: "every topic",
    number: { member: "v", now: ENVELOPE_VERSION },
    older: "as it is: every version ever written is read (pipelines/record/envelope.ts)",
    newer: "set aside with the reason, byte for byte; touchstone redrive reads it once it is known",
  },
  {
    what: "private store, and all that has no number of its own there: commits, segments, staging, plans, salts",
    where: "private/record.json",
    number: { member: "v", now: STORE_FORM },
    older: "as it is: a store without the mark gets it at the next start",
    newer: REFUSED_AT_START,
  },
  {
    what: "generations",
    where: "private/generation/",
    number: { member: "v", now: 1 },
    older: "there is none",
    newer: REFUSED_AT_START,
  },
  {
    what: "runs and refusals",
    where: "private/runs/, private/refused/",
    number: { member: "v", now: "2 (runs), 1 (refusals)" },
    older: "as it is; one whose table of related parties the tree does not name is graded anew by its owner",
    newer: "not taken, with the reason; its owner grades anew",
  },
  {
    what: "parts of owners: evidence, archive, history, volatile tables",
    where: "private/owners/",
    number: { member: "v", now: "2 (volatile), 1 (evidence, archive, history)" },
    older: REWRITTEN_BY_OWNER,
    newer: REWRITTEN_BY_OWNER,
  },
  {
    what: "store of the orders",
    where: "orders/record.json",
    number: { member: "v", now: STORE_FORM },
    older: "as it is: a store without the mark gets it at the next start; bodies and answers are the bytes themselves",
    newer: REFUSED_AT_START,
  },
  {
    what: "lake",
    where: "lake/lake.duckdb",
    number: { member: "table lake_form", now: LAKE_FORM },
    older: "touchstone migrate, or rebuild: made anew from the segments of the private store",
    newer: "refused at start, code 7; touchstone rebuild makes it anew",
  },
  {
    what: "kept fold of orders",
    where: "folds/",
    number: { member: "form", now: new OrderTable().form },
    older: REBUILT_FROM_LOG,
    newer: REBUILT_FROM_LOG,
  },
  {
    what: "kept fold of watchers",
    where: "folds/",
    number: { member: "form", now: new WatcherTable().form },
    older: REBUILT_FROM_LOG,
    newer: REBUILT_FROM_LOG,
  },
];
