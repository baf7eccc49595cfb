import { describe, expect, test } from "vitest";
import { SELLERS } from "../../fixtures/market/sellers/index.ts";
import { holdAnswer, holdRecord, liveThrough, serveLived } from "./market-claims.ts";

/** One whole flow from sellers to an audited answer: the market of the demo, of which letters.test.ts lives all days. */
const DAYS = 3;
const lived = liveThrough(DAYS);

test("has its sellers, and nobody has a letter after so few days", () => {
  expect(lived.result.market).toHaveLength(SELLERS.length);
  expect(lived.result.market.filter(({ band }) => band !== "UNRATED" && band !== "F")).toEqual([]);
});

holdRecord(lived, 2);

describe("started again", () => holdAnswer(lived, serveLived(lived)));
