import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { sha256hexAsync } from "../../../infra/canonical.ts";
import { systemClock } from "../../../infra/clock.ts";
import { Failure } from "../../../infra/errors.ts";
import { type Holder, Places } from "../../../infra/shares.ts";
import { Extracted } from "../../schemas/extract.ts";
import { EXTRACT_LIMITS, type ExtractLimits } from "./limits.ts";

/** Formats of documents. */
export type DocumentKind = Extracted["kind"];

/** A document to extract. */
export interface ExtractionRequest<Kind extends DocumentKind = DocumentKind> {
  bytes: Uint8Array;
  /** Declared media type of the document, such as the `content-type` of the response that contained it. */
  type?: string | undefined;
  /** Address of the document, the base of relative links. */
  url?: string | null;
  /** `whole`: the whole text of a web page is extracted; `main`: its main text alone. Default: `whole`. */
  part?: Extracted["part"];
  /** Accepted formats; others are refused. */
  kinds: readonly Kind[];
  /** Limits that replace those of the extractor. */
  limits?: Partial<ExtractLimits>;
  /** The client whose fair share of extractions is used. Default: this service itself. */
  holder?: Holder;
  signal?: AbortSignal;
}

/**
 * Thrown for a document that cannot be extracted. `why` is "bound" when the document exceeds a limit, which `bound`
 * names; "unreadable" when the document is damaged, locked or without text, or crashes the process that parses it;
 * "kind" when its format is not accepted.
 */
export class NotExtracted extends Failure {
  constructor(
    readonly why: "bound" | "unreadable" | "kind",
    says: string,
    readonly bound: string | null = null,
  ) {
    super("unreadable", says);
  }
}

/**
 * Thrown when a document was not extracted for a reason that lies outside of the document: too many documents wait, no
 * child process could be started, the extraction took long while others waited, or the caller aborted it.
 */
export class ExtractorUnavailable extends Failure {
  constructor(why: string) {
    super("busy", why, { retriable: true });
  }
}

/** Extracts text and structure from documents. */
export interface Extractor {
  /** Extracts a document. @throws NotExtracted, ExtractorUnavailable */
  read<Kind extends DocumentKind>(asked: ExtractionRequest<Kind>): Promise<Extracted & { kind: Kind }>;
  /** Refuses the documents that wait, kills all child processes, and resolves when they have ended. */
  close(): Promise<void>;
}

export interface ExtractorOptions {
  limits?: Partial<ExtractLimits>;
  /** Largest number of child processes at once; each extracts one document. */
  atOnce?: number;
  /** Largest number of documents that wait for a child. */
  maxWaiting?: number;
  /** Longest wait for a child, ms. */
  waitMs?: number;
}

const OWN_FOLDER = fileURLToPath(new URL(".", import.meta.url));
const CHILD_SCRIPT = fileURLToPath(new URL("./child.mjs", import.meta.url));
const CLOSED_MODULE = new URL("./closed.mjs", import.meta.url).href;
/**
 * The `node_modules` folders with the packages that the child imports: in this project's folder in a clone, above that
 * folder when the project is itself an installed package.
 */
const PACKAGE_FOLDERS = (createRequire(import.meta.url).resolve.paths("unpdf") ?? []).filter(
  (folder) => OWN_FOLDER.startsWith(dirname(folder)) && existsSync(folder),
);

/**
 * Patterns of the paths that the child may read: its own code and the packages, also by their real paths in case their
 * folders are symbolic links. Each pattern occurs once, because Node 20 aborts when a folder is named twice.
 */
const READABLE_PATTERNS = [
  ...new Set(
    [OWN_FOLDER, ...PACKAGE_FOLDERS, ...PACKAGE_FOLDERS.map((one) => realpathSync(one))].map(
      (one) => `${one.replace(/\/$/, "")}/*`,
    ),
  ),
];

/**
 * Name, in this version of Node, of the flag that turns on the permission model. The model then forbids the child to
 * write files and to start processes and threads.
 */
const PERMISSION_FLAG = process.allowedNodeEnvironmentFlags.has("--permission")
  ? "--permission"
  : "--experimental-permission";

/**
 * Returns the command-line flags of Node for a child that parses untrusted documents.
 * @param heapMib largest heap, MiB
 */
export const childFlags = (heapMib: number): string[] => [
  PERMISSION_FLAG,
  ...READABLE_PATTERNS.map((pattern) => `--allow-fs-read=${pattern}`),
  "--disallow-code-generation-from-strings",
  "--disable-proto=throw",
  `--max-old-space-size=${heapMib}`,
  "--no-warnings",
  `--import=${CLOSED_MODULE}`,
];

/**
 * Seconds by which the kernel's limit of processor time exceeds the limit that this process enforces. The kernel's
 * limit also stops a child whose parent, this process, has died.
 */
const KERNEL_SLACK_S = 2;
/**
 * A shell script that sets limits of the kernel and then executes the child: no core file, no written files, and a
 * number of seconds of processor time. At the soft limit of time the kernel sends SIGXCPU, at the hard one SIGKILL. The
 * child gets a low priority, so that payments are handled before documents.
 */
const LIMITING_SCRIPT =
  'ulimit -c 0; ulimit -f 0; ulimit -H -t "$(($1 + 1))"; ulimit -S -t "$1"; shift; exec nice -n 10 "$@"';

/**
 * Returns the program and the arguments that run Node with the arguments `nodeArguments` under the limits of {@link
 * LIMITING_SCRIPT}.
 * @param cpuSeconds soft limit of processor time
 */
export const withKernelLimits = (cpuSeconds: number, nodeArguments: readonly string[]): [string, string[]] => [
  "/bin/sh",
  ["-c", LIMITING_SCRIPT, "sh", String(cpuSeconds), process.execPath, ...nodeArguments],
];

const MEASURE_INTERVAL_MS = 20;
/**
 * Bytes of a memory page, and ms of a clock tick, as /proc of Linux counts memory and processor time (proc(5): USER_HZ
 * is 100 on every platform of Node).
 */
const PAGE_BYTES = 4_096;
const TICK_MS = 10;
const MAX_ERROR_BYTES = 16_384;

/**
 * Returns the resident memory and the processor time of a process; null on systems without /proc, where only the limits
 * of heap, real time, output and the kernel apply.
 */
function measureProcess(pid: number): { rssBytes: number; cpuMs: number } | null {
  try {
    // The process's name, in parentheses, may contain anything, so the other fields are read after the last
    // parenthesis.
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    return { rssBytes: Number(fields[21]) * PAGE_BYTES, cpuMs: ticks * TICK_MS };
  } catch {
    return null;
  }
}

const boundFault = (bound: string, says: string): NotExtracted => new NotExtracted("bound", says, bound);
const formatMib = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;

/** What a child writes to its standard output: the extracted document, or why it could not be extracted. */
type ChildAnswer = { ok: true; value: unknown } | { ok: false; why: NotExtracted["why"]; bound?: string; says: string };

/** One child process, which extracts one document. */
class ExtractionJob {
  readonly #child: ChildProcess;
  readonly #outChunks: Buffer[] = [];
  #outBytes = 0;
  #errorText = "";
  #fault: Error | null = null;
  readonly #measureTimer: NodeJS.Timeout;
  readonly #timeoutTimer: NodeJS.Timeout;
  readonly result: Promise<Extracted>;

  /** Processor time of the child at the last measurement, ms. */
  cpuMs = 0;
  /** True once the child was killed at the limit of real time, which a busy machine may cause. */
  isLate = false;

  /** @param isWanted returns true while documents of other clients wait for the place of this job, else false */
  constructor(
    private readonly request: ExtractionRequest,
    private readonly limits: ExtractLimits,
    private readonly isWanted: () => boolean,
  ) {
    const seconds = Math.ceil(limits.cpuMs / 1_000) + KERNEL_SLACK_S;
    this.#child = spawn(...withKernelLimits(seconds, [...childFlags(limits.heapMib), CHILD_SCRIPT]), {
      stdio: ["pipe", "pipe", "pipe"],
      cwd: "/",
      env: {},
    });
    this.#measureTimer = setInterval(() => this.#measure(), MEASURE_INTERVAL_MS);
    const timeoutText = `not read within ${limits.wallMs} ms`;
    this.#timeoutTimer = setTimeout(() => {
      this.isLate = true;
      this.kill(boundFault("time", timeoutText));
    }, limits.wallMs);
    this.result = this.#run();
  }

  /** Kills the child. `result` then rejects with the fault of the first call. */
  kill(fault: Error): void {
    this.#fault ??= fault;
    this.#child.kill("SIGKILL");
  }

  async #run(): Promise<Extracted> {
    const child = this.#child;
    child.stdout!.on("data", (chunk: Buffer) => this.#takeOutput(chunk));
    child.stderr!.on("data", (chunk: Buffer) => {
      if (this.#errorText.length < MAX_ERROR_BYTES) this.#errorText += chunk.toString("latin1");
    });
    // A write to a dead child fails; its exit is handled below.
    child.stdin!.on("error", () => {});
    const exited = new Promise<void>((resolve) => {
      child.once("error", (error) => {
        this.#fault ??= new ExtractorUnavailable(`no reader can be begun: ${error.message}`);
        resolve();
      });
      child.once("close", () => resolve());
    });
    const { type, url = null, part = "whole", kinds, bytes } = this.request;
    child.stdin!.write(`${JSON.stringify({ type, url, part, kinds, limits: this.limits })}\n`);
    child.stdin!.end(bytes);
    await exited;
    clearInterval(this.#measureTimer);
    clearTimeout(this.#timeoutTimer);
    if (this.#fault) throw this.#fault;
    return this.#parseResult();
  }

  #measure(): void {
    const usage = this.#child.pid === undefined ? null : measureProcess(this.#child.pid);
    if (!usage) return;
    const { rssBytes, cpuMs, sharedCpuMs } = this.limits;
    this.cpuMs = usage.cpuMs;
    if (usage.rssBytes > rssBytes)
      this.kill(boundFault("memory", `reading it takes more than ${formatMib(rssBytes)} of memory`));
    if (usage.cpuMs > cpuMs) this.kill(boundFault("time", `reading it takes more than ${cpuMs} ms of processor time`));
    else if (usage.cpuMs > sharedCpuMs && this.isWanted()) {
      this.kill(
        new ExtractorUnavailable(`others wait, and reading it takes more than ${sharedCpuMs} ms of processor time`),
      );
    }
  }

  #takeOutput(chunk: Buffer): void {
    this.#outBytes += chunk.length;
    const maxBytes = this.limits.outputBytes;
    if (this.#outBytes > maxBytes)
      this.kill(boundFault("output", `what was read of it is more than ${maxBytes} bytes`));
    else this.#outChunks.push(chunk);
  }

  #parseResult(): Extracted {
    const answer = this.#readAnswer();
    if (!answer.ok) throw new NotExtracted(answer.why, answer.says, answer.bound ?? null);
    const parsed = Extracted.safeParse(answer.value);
    if (!parsed.success) throw new NotExtracted("unreadable", "the reader gave an answer of the wrong form");
    return parsed.data;
  }

  /** Returns the child's answer. A child without one ran out of heap, was killed by the kernel, or crashed. */
  #readAnswer(): ChildAnswer {
    try {
      if (this.#outBytes > 0) return JSON.parse(Buffer.concat(this.#outChunks).toString("utf8")) as ChildAnswer;
    } catch {
      return { ok: false, why: "unreadable", says: "the reader ended in the middle of its answer" };
    }
    const { heapMib, cpuMs } = this.limits;
    if (/heap|allocation|out of memory/i.test(this.#errorText)) {
      return { ok: false, why: "bound", bound: "memory", says: `reading it takes more than ${heapMib} MiB of memory` };
    }
    if (this.#child.signalCode === "SIGXCPU") {
      return {
        ok: false,
        why: "bound",
        bound: "time",
        says: `reading it takes more than ${cpuMs} ms of processor time`,
      };
    }
    return { ok: false, why: "unreadable", says: "the reader crashed" };
  }
}

/** Defaults of {@link ExtractorOptions}. */
const DEFAULT_OPTIONS = { atOnce: 2, maxWaiting: 64, waitMs: 15_000 };
/** Time for which a failed document is remembered, ms, so that it is refused without another extraction. */
const FAILURE_MEMORY_MS = 3_600_000;
/** Largest number of failed documents that are remembered; beyond it, the oldest is forgotten. */
const MAX_REMEMBERED = 1_000;

/** A failed extraction, and the limit of processor time under which it failed. */
interface FailedRead {
  fault: NotExtracted;
  cpuMs: number;
  failedAtMs: number;
}

class ChildExtractor implements Extractor {
  readonly #places: Places;
  readonly #jobs = new Set<ExtractionJob>();
  readonly #closing = new AbortController();
  readonly #failed = new BoundedMap<string, FailedRead>(MAX_REMEMBERED);

  constructor(private readonly options: ExtractorOptions) {
    const { atOnce: size, maxWaiting: waiting } = { ...DEFAULT_OPTIONS, ...options };
    this.#places = new Places({ name: "documents", size, waiting });
  }

  async read<Kind extends DocumentKind>(asked: ExtractionRequest<Kind>): Promise<Extracted & { kind: Kind }> {
    const limits = { ...EXTRACT_LIMITS, ...this.options.limits, ...asked.limits };
    const stopSignals = asked.signal ? [asked.signal, this.#closing.signal] : [this.#closing.signal];
    const { kinds, type, part, limits: overrides } = asked;
    const extension = extname(asked.url ?? "").slice(0, 12);
    const documentKey = JSON.stringify([await sha256hexAsync(asked.bytes), kinds, type, extension, part, overrides]);
    this.#refuseFailedBefore(documentKey, limits);
    const timeout = AbortSignal.timeout(this.options.waitMs ?? DEFAULT_OPTIONS.waitMs);
    const place = await this.#places.take(asked.holder ?? {}, AbortSignal.any([...stopSignals, timeout]));
    if (!place) throw new ExtractorUnavailable("too many documents are being read");
    try {
      this.#refuseFailedBefore(documentKey, limits);
      // The child refuses documents of other kinds than `kinds`, so the answer is of one of them.
      return (await this.#readInChild(asked, limits, documentKey, AbortSignal.any(stopSignals))) as Extracted & {
        kind: Kind;
      };
    } finally {
      place.leave();
    }
  }

  /**
   * Refuses a document that failed within the last hour with at least as much processor time as it would get now.
   * @throws NotExtracted
   */
  #refuseFailedBefore(documentKey: string, { cpuMs }: ExtractLimits): void {
    const failedRead = this.#failed.get(documentKey);
    if (!failedRead || failedRead.cpuMs < cpuMs || systemClock.monotonic() - failedRead.failedAtMs > FAILURE_MEMORY_MS)
      return;
    throw failedRead.fault;
  }

  /**
   * Extracts a document in a child process. Nobody pays for a failed extraction, so its processor time is counted as a
   * debt of its holder (the client), which then waits longer for its next places.
   */
  async #readInChild(
    asked: ExtractionRequest,
    limits: ExtractLimits,
    documentKey: string,
    signal: AbortSignal,
  ): Promise<Extracted> {
    if (signal.aborted) throw new ExtractorUnavailable("called off");
    const { holder = {} } = asked;
    const job = new ExtractionJob(asked, limits, () => this.#places.isWantedByOthers(holder));
    const stopJob = () => job.kill(new ExtractorUnavailable("called off"));
    signal.addEventListener("abort", stopJob, { once: true });
    this.#jobs.add(job);
    try {
      return await job.result;
    } catch (error) {
      this.#places.addDebt(holder, job.cpuMs / limits.cpuMs);
      if (error instanceof NotExtracted && !job.isLate) {
        this.#failed.set(documentKey, { fault: error, cpuMs: limits.cpuMs, failedAtMs: systemClock.monotonic() });
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", stopJob);
      this.#jobs.delete(job);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([...this.#jobs].map(({ result }) => result));
  }
}

/**
 * Creates an extractor of untrusted documents. Each document is parsed in a separate process, whose memory and
 * processor time are measured from outside and also bounded by its heap size and the kernel. The process has an empty
 * environment and no network, reads only its own code and packages, starts no process or thread, and its output is
 * bounded. If it crashes, only its document fails.
 */
export const createExtractor = (options: ExtractorOptions = {}): Extractor => new ChildExtractor(options);
