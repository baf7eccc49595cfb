import { expect, test } from "vitest";
import { CONTRACTS, readArtefact } from "../../../../infra/rails/chain/artefact.ts";
import { compile } from "../../../../infra/rails/chain/compile.ts";

test.each(CONTRACTS)("the committed artefact of %s is what its source compiles to", (contract) => {
  expect(readArtefact(contract)).toEqual(compile(contract));
});
