import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BuyersExpectation } from "../../record/expectation.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { type ReadClaim, readClaim, rejectRow, type Source } from "../listings/claims.ts";
import { readBytes, readPage, readYaml } from "../listings/documents.ts";
import { readInitializeAnswer, readListPage, readReply } from "../mcp/answers.ts";
import { type Networks, readAskedTerms } from "../terms/terms.ts";
import { type Expectation, evaluate } from "./checks.ts";
import { checkExpectation, findExpectationFaults } from "./expected.ts";
import { Schemas } from "./schema.ts";

const schemas = new Schemas();

/** Reads rows of listings as claims, in order. If our own code fails on a row, only that row is rejected. */
function readRows(request: {
  rows: readonly unknown[];
  source: Omit<Source, "validate">;
  ownNetwork: Networks;
}): ReadClaim[] {
  return request.rows.map((row) => {
    try {
      return readClaim(row, request.source, request.ownNetwork);
    } catch (error) {
      return { rejected: rejectRow("unreadable", row, String(error)) };
    }
  });
}

/**
 * The functions that read data from strangers, by the names under which the reader's thread calls them. They are pure
 * functions of plain data, since they run in a thread that can be stopped.
 */
export const QUESTIONS = {
  /** Reads the payment terms of a 402. */
  terms: (input: { answer: Answer402; ownNetwork: Networks; url: string | undefined }) =>
    readAskedTerms(input.answer, input.ownNetwork, input.url),
  /** Evaluates the answer to a paid request. `again`: was the request repeated with its payment proof? */
  evaluate: (input: { result: EgressResult & { raw?: Uint8Array }; want: Expectation; again: boolean }) =>
    evaluate(input.result, input.want, schemas, input.again),
  /** Can answers be checked against this schema? */
  usable: (input: { schema: unknown }) => schemas.isUsable(input.schema),
  /** Finds the members of a buyer's expectation that cannot be evaluated. */
  faults: (input: { expect: BuyersExpectation }) => findExpectationFaults(input.expect, schemas),
  /** Checks an answer against its buyer's expectation. */
  expected: (input: { expect: BuyersExpectation; body: Uint8Array }) =>
    checkExpectation(input.expect, input.body, schemas),
  /** Reads an MCP server's response to `initialize`. */
  welcome: readInitializeAnswer,
  /** Reads an MCP server's response to `tools/list`. */
  list: readListPage,
  /** Reads an MCP server's response to `tools/call`. */
  reply: readReply,
  /** Reads the bytes of a document of listings. */
  document: readBytes,
  /** Reads one page of a catalogue. */
  page: readPage,
  /** Reads rows of a document or a catalogue as claims. */
  rows: readRows,
  /** Reads listings that an operator wrote as YAML. */
  yaml: readYaml,
};

export type Questions = typeof QUESTIONS;
