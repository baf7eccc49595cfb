import { describe, expect, test } from "vitest";
import { readItems } from "../../../../pipelines/1-observe/listings/wellknown.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import { END, listAndPlan, START } from "../day.ts";
import { answer, entry, type FakeWorld, fakeWorld, type Handler } from "../world.ts";

const SELLER = "https://seller.example";
const URL_LISTED = `${SELLER}/run`;
const [GET, POST] = [capId("GET", URL_LISTED), capId("POST", URL_LISTED)];

/** A 402 by header, as a stock server sends it. */
const demand = () =>
  answer(
    402,
    {},
    {
      "payment-required": Buffer.from(
        JSON.stringify({ x402Version: 2, resource: { url: URL_LISTED }, accepts: [entry()] }),
      ).toString("base64"),
    },
  );

/** A seller whose document lists a plain url (onchainos-skills#42, x402#3249). */
const shop =
  (door: Handler): Handler =>
  (asked, n) =>
    new URL(asked.url).pathname === "/.well-known/x402"
      ? answer(200, { version: 1, resources: [URL_LISTED] })
      : door(asked, n);

const postOnly =
  (refusal: ReturnType<typeof answer>): Handler =>
  ({ method, ...asked }) =>
    method === "POST" && JSON.stringify(asked.json) === "{}" ? demand() : refusal;

async function day(world: FakeWorld, door: Handler) {
  const plan = await listAndPlan(world, shop(door));
  await world.observer.observeSpan(plan, START, END);
  const handshakes = world.log
    .envelopes()
    .filter(({ type }) => type === "handshake")
    .map(({ cap, body }) => ({ cap, ...(body as { state: string; fault: string | null; status: number | null }) }));
  const of = (cap: string) => handshakes.filter((one) => one.cap === cap);
  return { get: of(GET), post: of(POST), all: handshakes };
}

describe("a listing that names no method", () => {
  test.each<[string, ReturnType<typeof answer>]>([
    ["405 with Allow", answer(405, "", { allow: "POST" })],
    ["405 without Allow", answer(405, "")],
    ["404", answer(404, {})],
    ["a page for people", answer(200, "<html>pay by POST</html>")],
  ])(
    "its endpoint takes POST alone, and GET meets %s: the method is found, nothing is held against it",
    async (_n, no) => {
      const world = fakeWorld();
      const { get, post, all } = await day(world, postOnly(no));
      expect(get.length).toBeGreaterThan(0);
      expect(new Set(get.map(({ fault }) => fault))).toEqual(new Set(["ours"]));
      expect(post.length).toBeGreaterThan(0);
      expect(new Set(post.map(({ state, fault }) => `${state} ${fault}`))).toEqual(new Set(["asked null"]));
      expect(all.length).toBe(get.length + post.length);
      expect(world.log.bodies("listing").filter(({ source }) => source === "402")).toMatchObject([
        { claims: { method: "POST", url: URL_LISTED } },
      ]);
    },
  );

  test("the next read of the seller's document puts its listing where the 402 came from", async () => {
    const world = fakeWorld();
    await day(world, postOnly(answer(405, "")));
    await world.observer.intakeSeller(SELLER);
    const own = world.log.envelopes().flatMap(({ type, cap, body }) => {
      const { seller_controlled } = body as { seller_controlled?: boolean };
      return type === "listing" && seller_controlled ? [cap] : [];
    });
    expect(own).toEqual([GET, POST]);
  });

  test("a 405 that no method mends is our mistake; a 404 everywhere is the seller's, and is not looked into each day", async () => {
    const refused = await day(fakeWorld(), () => answer(405, ""));
    expect(new Set(refused.get.map(({ fault }) => fault))).toEqual(new Set(["ours"]));
    expect(refused.post).toEqual([]);
    const world = fakeWorld();
    const gone = await day(world, () => answer(404, {}));
    expect(new Set(gone.get.filter(({ status }) => status === 404).map(({ fault }) => fault)).has(null)).toBe(true);
  });

  test("an endpoint that answers GET with a 402 is asked by nothing else", async () => {
    const world = fakeWorld();
    await day(world, () => demand());
    expect(new Set(world.egress.asked.map(({ method }) => method))).toEqual(new Set(["GET"]));
  });
});

test("of two lists in one document the one that names methods wins, and no url is lost", () => {
  const urls = ["https://s.example/a", "https://s.example/b"];
  const read = readItems({ version: 1, resources: urls, endpoints: [{ path: "/a", method: "POST" }] });
  expect(read.items).toEqual([{ path: "/a", method: "POST" }, { url: urls[1] }]);
  expect(readItems({ resources: ["GET /a"], endpoints: [{ path: "/a", method: "POST" }] }).items).toHaveLength(1);
});
