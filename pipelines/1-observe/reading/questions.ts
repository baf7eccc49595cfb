import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { type ReadClaim, readClaim, rejected, type Source } from "../listings/claims.ts";
import { readBytes, readPage, readYaml } from "../listings/documents.ts";
import { readListPage, readReply, readWelcome } from "../mcp/answers.ts";
import { type Networks, readAsked } from "../terms/terms.ts";
import { type Expectation, evaluate } from "./checks.ts";
import { Schemas } from "./schema.ts";

const schemas = new Schemas();

/** Rows as claims, in their order. One that our own code fails on stops only itself. */
function readRows(of: {
  rows: readonly unknown[];
  source: Omit<Source, "validate">;
  ownNetwork: Networks;
}): ReadClaim[] {
  return of.rows.map((row) => {
    try {
      return readClaim(row, of.source, of.ownNetwork);
    } catch (error) {
      return { rejected: rejected("unreadable", row, String(error)) };
    }
  });
}

/**
 * Everything that is read of what strangers sent: pure functions of plain data, each answered in a thread that can be
 * stopped. What asks a rail or the fetch is done with the answer by whoever asked.
 */
export const QUESTIONS = {
  /** The payment terms of a 402. */
  terms: (of: { answer: Answer402; ownNetwork: Networks; url: string | undefined }) =>
    readAsked(of.answer, of.ownNetwork, of.url),
  /** What came back on a paid connection, held against what was promised. */
  evaluate: (of: { result: EgressResult & { raw?: Uint8Array }; want: Expectation; again: boolean }) =>
    evaluate(of.result, of.want, schemas, of.again),
  /** What an MCP server said to `initialize`, of its tools, and to a call. */
  welcome: readWelcome,
  list: readListPage,
  reply: readReply,
  /** A document of listings, a page of a catalogue, rows of either, and an operator's YAML. */
  document: readBytes,
  page: readPage,
  rows: readRows,
  yaml: readYaml,
};

export type Questions = typeof QUESTIONS;
