import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BuyersExpectation } from "../../record/expectation.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { type ReadClaim, readClaim, rejected, type Source } from "../listings/claims.ts";
import { readBytes, readPage, readYaml } from "../listings/documents.ts";
import { readListPage, readReply, readWelcome } from "../mcp/answers.ts";
import { type Networks, readAsked } from "../terms/terms.ts";
import { type Expectation, evaluate } from "./checks.ts";
import { expected, faultsOf } from "./expected.ts";
import { Schemas } from "./schema.ts";

const schemas = new Schemas();

/** Reads rows as claims, in order. If our own code fails on a row, only that row is rejected. */
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
 * The functions that read what strangers sent. They are pure functions of plain data and run in a thread that can be
 * stopped; the caller then does what needs a rail or egress.
 */
export const QUESTIONS = {
  /** The payment terms of a 402. */
  terms: (of: { answer: Answer402; ownNetwork: Networks; url: string | undefined }) =>
    readAsked(of.answer, of.ownNetwork, of.url),
  /** Evaluates what came on a paid connection. */
  evaluate: (of: { result: EgressResult & { raw?: Uint8Array }; want: Expectation; again: boolean }) =>
    evaluate(of.result, of.want, schemas, of.again),
  /** Can this schema be held against answers? */
  usable: (of: { schema: unknown }) => schemas.usable(of.schema),
  /** What of a buyer's own expectation cannot be used; and the checks of an answer against one. */
  faults: (of: { expect: BuyersExpectation }) => faultsOf(of.expect, schemas),
  expected: (of: { expect: BuyersExpectation; body: Uint8Array }) => expected(of.expect, of.body, schemas),
  /** Read an MCP server's responses: to `initialize`, to `tools/list`, and to a call. */
  welcome: readWelcome,
  list: readListPage,
  reply: readReply,
  /** Read a document of listings, a page of a catalogue, rows of either, and an operator's YAML. */
  document: readBytes,
  page: readPage,
  rows: readRows,
  yaml: readYaml,
};

export type Questions = typeof QUESTIONS;
