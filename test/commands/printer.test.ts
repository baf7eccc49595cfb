import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { annotationLine } from "../../commands/annotations.ts";
import * as audit from "../../commands/audit.ts";
import { budgetLines } from "../../commands/budget.ts";
import { checkLines } from "../../commands/check.ts";
import { findingLines } from "../../commands/doctor.ts";
import * as exposure from "../../commands/exposure.ts";
import * as ledger from "../../commands/ledger.ts";
import { letterLines } from "../../commands/letters.ts";
import * as listing from "../../commands/listing.ts";
import { lineOf, linesOf } from "../../commands/listings.ts";
import * as mirror from "../../commands/mirror.ts";
import * as monitor from "../../commands/monitor.ts";
import { ProgressLine, print, printJson, printJsonText, printLines, say, sayError } from "../../commands/printer.ts";
import { commandsOf } from "../../commands/program.ts";
import * as recompute from "../../commands/recompute.ts";
import { importLines } from "../../commands/register.ts";
import { columns, report } from "../../commands/report.ts";
import { textOf } from "../../commands/wallets.ts";
import { systemClock } from "../../infra/clock.ts";
import { warn } from "../../infra/finding.ts";
import { toPrintable, toPrintableJson } from "../../infra/printable.ts";
import { program } from "../../touchstone.ts";
import { fc } from "../helpers/histories.ts";

const ROOT = resolve(import.meta.dirname, "../..");
/** Colours, a title that a terminal takes, a line of its own, text written backwards, text that is not seen, half a character. */
const HOSTILE =
  "a\u001b[31mred\u001b]0;title\u0007\r\n\u009b2Jok      everything holds\u2028b\u202ecba\u2066\u200b\u200f\ufeff\u007f\ud800c";
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}]/u;

let written = "";
let said = "";
beforeEach(() => {
  [written, said] = ["", ""];
  vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    written += String(text);
    return true;
  });
  vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    said += String(text);
    return true;
  });
});
afterEach(() => vi.restoreAllMocks());

/** Whatever is read of it is the stranger's text; the figures count, and every list has one of it. */
const hostile = (known: Record<string, unknown> = {}): never =>
  new Proxy(known, {
    get: (target, name) => (name in target ? target[name as string] : HOSTILE),
  }) as never;

const lines = (n: number): string[] => Array<string>(n).fill(HOSTILE);
const reported = () => report({}, { done: HOSTILE, of: [HOSTILE], more: { [HOSTILE]: HOSTILE } }, HOSTILE);
const printed = () => print({}, HOSTILE, lines(2));

const line = hostile({
  ...{ flags: ["payee_took_the_money"], pay_to_seen_before: false, unit: null, price: HOSTILE, monthly_spend: HOSTILE },
});
const EXPOSURE = hostile({
  ...{ lines: [line], payees: [hostile({ dependencies: 1 })] },
  totals: hostile({ other_assets: [hostile()], without_spend: 1, related: hostile() }),
});
const BUDGET = hostile({
  caps: hostile(),
  spent: hostile({ day: hostile(), by_domain: [hostile()], by_payee: [hostile()] }),
  coverage: hostile({ not_covered: { [HOSTILE]: 1 } }),
  endpoints: [hostile({ next: hostile() })],
});
const LEDGER = hostile({
  assets: [
    hostile({
      ...{ accounts: { [HOSTILE]: HOSTILE }, wallets: { [HOSTILE]: hostile() }, gas: { [HOSTILE]: hostile() } },
      ...{ owed: [hostile({ what: "refund" })], differences: [hostile()], unseen: [hostile()] },
    }),
  ],
});
const seen = hostile({ protocols: [HOSTILE], defects: [HOSTILE] });
const told = hostile({ rejected: { [HOSTILE]: 1 } });
const refused = [hostile({ reason: "again", rows: 1, examples: [HOSTILE] })];
const beside = { domains: hostile({ refused }), relationships: hostile({ refused }), exceptions: hostile({ refused }) };
const imported = { ...{ rows_read: 1, rows_kept: 1, names: 1, bytes: 1, refused }, ...beside };

/**
 * Every command, and how it prints what strangers wrote: through its own function where lines are made of parts, else as it
 * hands them to the printer.
 */
const PRINTS: Record<string, () => void> = {
  start: () => {
    const market = [hostile({ url: "https://x.example/", composite: 1, flags: [HOSTILE], defects: [HOSTILE] })];
    printLines(letterLines({ simulated: hostile(), took_s: 1, tree_size: 1, market }, HOSTILE));
  },
  init: printed,
  keygen: printed,
  "keys list": printed,
  "keys rotate": printed,
  observe: () => {
    reported();
    printLines(lineOf(seen));
  },
  listing: () => {
    const finding = { severity: "grave", what: HOSTILE, says: HOSTILE, mend: HOSTILE } as const;
    printLines(
      listing.linesOf(hostile({ offers: [hostile()], stock_client: hostile(), listing: hostile() }), [finding]),
    );
    printLines(annotationLine(listing.annotationOf(finding, HOSTILE, HOSTILE)));
  },
  "listings add": () => printLines(linesOf(told)),
  "listings list": () => print({}, {}, columns([lines(3), lines(3)])),
  "listings show": () => print({}, {}, columns([lines(3), lines(3)])),
  "listings remove": printed,
  "register import": () => printLines(importLines(hostile(imported))),
  ingest: reported,
  grade: reported,
  own: reported,
  publish: reported,
  archive: reported,
  "archive supersede": reported,
  budget: () => printLines(budgetLines(BUDGET, 40)),
  ledger: () => printLines(ledger.linesOf(LEDGER)),
  "plan show": printed,
  witness: printed,
  verify: printed,
  check: () => {
    const answer = hostile({
      ...{ observed: { advertised: { amount: HOSTILE, asset: HOSTILE, networks: [HOSTILE] } }, payee: hostile() },
      ...{ corrections: [hostile()], buy: hostile() },
    });
    const flag = { reason: "flag", what: HOSTILE, says: HOSTILE, refuses: true } as const;
    printLines(checkLines(answer, [flag as never]));
    printLines(checkLines({ ...(answer as object), buy: undefined, not_bought: HOSTILE } as never, []));
  },
  buy: () => printLines(lines(2)),
  resume: () => printLines(lines(2)),
  serve: reported,
  buckets: printed,
  redrive: reported,
  rebuild: reported,
  migrate: printed,
  mirror: () => {
    const counts = { tree_size: 2, from: 1 };
    const done = hostile({ ...counts, missing: [hostile()], mended: [hostile()] });
    printLines(mirror.linesOf(done, HOSTILE, 1));
    say(HOSTILE);
  },
  "mirror serve": printed,
  monitor: () => {
    const notice = { at: HOSTILE, says: HOSTILE, capability_id: HOSTILE, url: HOSTILE, names: [HOSTILE], leaf: 1 };
    printLines(monitor.noticeLine({ type: "monitor.changed", ...notice }, HOSTILE));
    printLines(
      monitor.noticeLine({ type: "monitor.equivocation", log: HOSTILE, says: HOSTILE, file: HOSTILE }, HOSTILE),
    );
    printLines(monitor.foundNameLine(hostile({ card: hostile({ flags: [HOSTILE] }), names: [HOSTILE] })));
    say(HOSTILE);
  },
  audit: () => {
    printLines(audit.linesOf(hostile({ open: 1, not_run: 1, result: "broken", problems: [hostile()] })));
    printLines(audit.conclude(hostile({ findings: [hostile({ open: 1 })] }), 1));
  },
  export: printed,
  correct: printed,
  reinstate: printed,
  dispute: reported,
  recompute: () => {
    printLines(recompute.linesOf(hostile({ difference: hostile() })));
    printLines(recompute.linesOf(hostile({ difference: null })));
  },
  exposure: () => printLines(exposure.linesOf(EXPOSURE)),
  doctor: () => printLines(findingLines([warn(HOSTILE, HOSTILE, HOSTILE)])),
  "wallets new": printed,
  "wallets list": () => {
    const wallets = [hostile({ balances: { [HOSTILE]: HOSTILE } })];
    printLines(textOf(hostile({ wallets, pools: [hostile()] }), [warn(HOSTILE, HOSTILE, HOSTILE)], "2026-11-21"));
  },
  "wallets sweep": printed,
  "gap accept": reported,
};

const wordsOf = (command: (typeof program.commands)[number]): string =>
  command.parent?.parent ? `${wordsOf(command.parent as never)} ${command.name()}` : command.name();
const isRun = (command: unknown): boolean =>
  (command as { _actionHandler: unknown })._actionHandler !== null &&
  (command as { _actionHandler: unknown })._actionHandler !== undefined;

test("every command that does something is in the table", () => {
  const all = commandsOf(program)
    .filter((command) => command !== program && isRun(command))
    .map((command) => wordsOf(command as never));
  expect(all.filter((words) => !(words in PRINTS))).toEqual([]);
  expect(Object.keys(PRINTS).filter((words) => !all.includes(words))).toEqual([]);
});

test.each(Object.entries(PRINTS))("%s prints text alone, in lines of its own", (_words, prints) => {
  prints();
  for (const text of [written, said]) {
    for (const one of text.split("\n")) {
      expect(one).not.toMatch(UNSAFE);
      // The stranger's text ends no line, so none of its lines stands where one of ours could.
      expect(one).not.toMatch(/^ok {6}everything/);
    }
  }
  expect(written).toContain("red");
});

describe("what the printer makes of any text", () => {
  const text = fc.string({
    unit: fc.oneof(
      fc.nat(0x10ffff).map((n) => String.fromCodePoint(n)),
      fc.constantFrom(...HOSTILE),
    ),
  });

  test("a line is one line, without anything that a terminal obeys; plain text stays as it is", () => {
    fc.assert(
      fc.property(text, (one) => {
        expect(toPrintable(one)).not.toMatch(UNSAFE);
      }),
    );
    expect(toPrintable("https://straße.example/日本?q=1 – “ok”")).toBe("https://straße.example/日本?q=1 – “ok”");
  });

  test("JSON is the same value, and text alone", () => {
    fc.assert(
      fc.property(fc.array(text), (value) => {
        const json = toPrintableJson(JSON.stringify(value));
        expect(json).not.toMatch(UNSAFE);
        expect(JSON.parse(json)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
    printJson({ [HOSTILE]: HOSTILE });
    expect(JSON.parse(written)).toEqual({ [HOSTILE]: HOSTILE });
    expect(written.slice(0, -1)).not.toMatch(UNSAFE);
    written = "";
    printJsonText('{"a":\n "\u009b31m"}');
    expect(written).toBe('{"a":\n "\\u009b31m"}\n');
  });

  test("further lines of an error are indented; the line of progress is cleaned too", () => {
    sayError("touchstone: a\ntouchstone: everything is well\u001b[2J\n  indented");
    expect(said).toBe("touchstone: a\n  touchstone: everything is well?[2J\n  indented\n");
    said = "";
    const was = process.stderr.isTTY;
    process.stderr.isTTY = true;
    const progress = new ProgressLine();
    process.stderr.isTTY = was;
    progress.show(HOSTILE, true);
    expect(said.startsWith("\r\u001b[Ka?[31mred")).toBe(true);
    expect(said.slice(4)).not.toMatch(UNSAFE);
    said = "";
    progress.end();
    expect(said).toBe("\r\u001b[K");
  });
});

test.each([
  ["a terminal", true, 50],
  ["a file", false, 10_000],
] as const)("progress on %s: one text at a time, and the last one always", (_, isTerminal, pauseMs) => {
  const { isTTY } = process.stderr;
  const now = vi.spyOn(systemClock, "monotonic").mockReturnValue(0);
  const shown = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  try {
    process.stderr.isTTY = isTerminal;
    const progress = new ProgressLine();
    const textsAt = (ms: number, ...texts: string[]) => {
      now.mockReturnValue(ms);
      shown.mockClear();
      for (const text of texts) progress.show(text);
      return shown.mock.calls.map(([text]) => String(text).replace("\r\u001b[K", "").trimEnd());
    };
    expect(textsAt(pauseMs, "a")).toEqual([]);
    expect(textsAt(pauseMs + 1, "b", "c")).toEqual(["b"]);
    expect(textsAt(2 * pauseMs + 2, "d")).toEqual(["d"]);
    progress.show("e", true);
    expect(String(shown.mock.calls.at(-1)![0])).toContain("e");
  } finally {
    process.stderr.isTTY = isTTY;
    vi.restoreAllMocks();
  }
});

/** Where something may be written beside the printer, and why. */
const ELSEWHERE: Record<string, string> = {
  "commands/exit.ts": "listens to errors of both streams once a terminal is gone; writes nothing",
  "infra/deploy/lock-platforms.mjs": "a tool of whoever builds an image; no command loads it",
  "infra/deploy/sbom.mjs": "a script of its own, while an image is built: names and versions of packages as JSON",
  "serving/work/extract/child.mjs": "a child whose stdout is a pipe that its parent reads frames from",
  "serving/work/extract/closed.mjs": "the same child closes what could write",
};

test("nothing writes to the terminal but the printer", () => {
  const WRITES =
    /\bconsole\b|\bprocess\s*(?:\?\.|\.)\s*(?:stdout|stderr)\b|\bprocess\s*\[|\bwriteSync\(\s*[12]\b|["'](?:node:)?console["']/;
  const files = ["infra", "pipelines", "serving", "commands"].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => /\.(?:ts|mjs)$/.test(name))
      .map((name) => join(folder, name)),
  );
  const writes = [...files, "touchstone.ts"].filter((file) => {
    const code = readFileSync(join(ROOT, file), "utf8").replace(/^\s*(?:\/\/|\*|\/\*\*).*$/gm, "");
    return WRITES.test(code);
  });
  expect(writes.filter((file) => file !== "commands/printer.ts").sort()).toEqual(Object.keys(ELSEWHERE));
});
