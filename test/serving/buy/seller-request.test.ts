import { describe, expect, test } from "vitest";
import type { SellableEndpoint } from "../../../serving/buy/eligible.ts";
import { sellerRequest } from "../../../serving/buy/seller-request.ts";
import { Problem } from "../../../serving/http/problem.ts";

/** What reaches the seller, without a market: the url alone, or the pointers of what is refused. */
describe("a variable of the listed url's query", () => {
  const listed = {
    url: "https://seller.example/%7Bpart%7D?q=%7Bcity%7D",
    method: "GET",
    tool: null,
  } as SellableEndpoint;
  const urlFor = (path: Record<string, string>, query: Record<string, string>): unknown => {
    try {
      const input = { path, query: new URLSearchParams(query), body: null, headers: new Headers() };
      return sellerRequest(listed, input).url;
    } catch (error) {
      return (error instanceof Problem ? error : null)?.extra.errors?.map(({ pointer }) => pointer);
    }
  };

  test("is filled, or its parameter is set by the query; values for both are refused", () => {
    expect(urlFor({ part: "a", city: "Oslo" }, {})).toBe("https://seller.example/a?q=Oslo");
    expect(urlFor({ part: "a" }, { q: "Rome" })).toBe("https://seller.example/a?q=Rome");
    expect(urlFor({ part: "a", city: "Oslo" }, { q: "Rome" })).toEqual(["/path/city"]);
  });

  test("a value of dots alone is refused where it was given", () => {
    expect(urlFor({ part: ".." }, { q: "Rome" })).toEqual(["/path/part"]);
    expect(urlFor({}, { part: "..", q: "Rome" })).toEqual(["/query/part"]);
  });
});
