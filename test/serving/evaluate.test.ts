import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EvaluateAnswer } from "../../serving/schemas/evaluate.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum", class: "arithmetic" };
const OUTPUT = {
  type: "object",
  properties: { sum: { type: "number" } },
  required: ["sum"],
  additionalProperties: false,
};
let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  serving = await servingOver(record, { limits: { evaluations_per_minute: 1_000 } });
});
afterAll(() => record.close());

const asked = (body: object): Promise<Response> =>
  serving.get("/v1/evaluate", { method: "POST", body: JSON.stringify({ status: 200, ...body }) });
async function evaluated(body: object): Promise<EvaluateAnswer> {
  const answer = await asked(body);
  expect(answer.status).toBe(200);
  return EvaluateAnswer.parse(await answer.json());
}
const failedOf = ({ checks }: EvaluateAnswer): string[] => checks.filter(({ ok }) => !ok).map(({ name }) => name);
const JSON_ANSWER = { content_type: "application/json", mime: "application/json" };

describe("would this answer pass", () => {
  test("a good one, held against class and schema", async () => {
    const answer = await evaluated({ ...JSON_ANSWER, class: "arithmetic", schema: OUTPUT, body: '{"sum":5}' });
    expect(answer).toMatchObject({ pass: true, delivered: true, delivery: 1, schema_ok: true, bytes: 9 });
    expect(answer.held_against).toEqual({
      ...{ class: "arithmetic", class_from: "request", schema: true, mime: "application/json" },
    });
    expect(answer.says).toBe("It would pass, and its buyer would be charged.");
    expect(failedOf(answer)).toEqual([]);
  });

  test.each([
    ["a member too many", { schema: OUTPUT, body: '{"sum":5,"unit":"m"}' }, ["schema"]],
    ["no sum", { class: "arithmetic", body: '{"total":5}' }, ["class_arithmetic"]],
    ["no JSON", { body: "{" }, ["parses"]],
    ["an error page", { body: '{"error":"no"}' }, ["no_error_page"]],
    ["another status", { status: 500, body: '{"sum":5}' }, ["status"]],
    ["nothing", {}, ["bytes_came"]],
    ["a demand to pay", { status: 402, body: '{"sum":5}' }, ["bytes_came"]],
  ])("%s", async (_, body, failed) => {
    const answer = await evaluated({ ...JSON_ANSWER, ...body });
    expect([answer.pass, failedOf(answer)]).toEqual([false, failed]);
    expect(answer.says).toContain(`Failed: ${failed[0]}`);
  });

  test("bytes that are no text", async () => {
    const answer = await evaluated({ content_type: "image/png", base64: "iVBORw0KGgo=" });
    expect(answer).toMatchObject({ pass: true, bytes: 8, schema_ok: null });
  });

  test("the class comes from the record; that it keeps no schema is said", async () => {
    const answer = await evaluated({ ...JSON_ANSWER, capability_id: capOf(SUM), body: '{"total":5}' });
    expect(answer.held_against).toMatchObject({ class: "arithmetic", class_from: "record", schema: false });
    expect(failedOf(answer)).toEqual(["class_arithmetic"]);
    expect(answer.says).toContain("No schema was tried");
  });

  const CALL = { ...JSON_ANSWER, capability_id: capOf(SUM), input: { query: { a: "103", b: "9" } } };
  test.each<[string, object, boolean, string, string[]]>([
    ["the right answer to this input", { body: '{"sum":112}' }, true, "truth", []],
    ["the right answer to another input", { body: '{"sum":93}' }, false, "truth", ["truth"]],
    [
      "an input that asks more than the class does",
      { input: { query: { a: "1", b: "2", unit: "m" } } },
      true,
      "class",
      [],
    ],
    ["no input", { input: undefined, body: '{"sum":93}' }, true, "class", []],
    ["the schema says most", { input: undefined, body: '{"sum":93}', schema: OUTPUT }, true, "schema", []],
    [
      "one's own expectation",
      { expect: { jsonpath: { path: "$.sum", value: 5 } } },
      false,
      "truth",
      ["expect_jsonpath"],
    ],
    ["an expectation that holds", { expect: { regex: "^..sum", min_length: 4 } }, true, "truth", []],
  ])("%s", async (_, more, pass, judged_by, failed) => {
    const answer = await evaluated({ ...CALL, body: '{"sum":112}', ...more });
    expect([answer.pass, answer.judged_by, failedOf(answer)]).toEqual([pass, judged_by, failed]);
    const isUntold = "input" in more && more.input !== undefined;
    expect(answer.says.includes("fixes no answer that is known")).toBe(isUntold);
  });

  test("a schema that never ends holds nobody up", async () => {
    const schema = { type: "string", pattern: "^(a+)+$" };
    const answer = await evaluated({ schema, mime: "application/json", body: JSON.stringify(`${"a".repeat(40)}!`) });
    expect(answer).toMatchObject({ pass: true, schema_ok: null, says: expect.stringContaining("cannot be used") });
    expect((await evaluated({ ...JSON_ANSWER, schema: OUTPUT, body: '{"sum":5}' })).pass).toBe(true);
  });
});

describe("numbers of an expectation", () => {
  test.each([
    ['{"d":-0.0}', "$.d", "0", true],
    ['{"d":[-0.0,{"b":1,"a":2}]}', "$.d", '[0,{"a":2,"b":1}]', true],
    ['{"d":0}', "$.d", "1", false],
    ['{"d":9007199254740993}', "$.d", "9007199254740991", false],
    ['{"d":"\\ud800"}', "$.d", '"?"', false],
  ])("%s: is %s %s? %s", async (body, path, value, pass) => {
    const jsonpath = { path, value: JSON.parse(value) };
    expect((await evaluated({ ...JSON_ANSWER, body, expect: { jsonpath } })).pass).toBe(pass);
  });
});

describe("bad questions", () => {
  const CALL = `"status":200,"capability_id":"${capOf(SUM)}"`;
  const DEEP = `${"[".repeat(66)}${"]".repeat(66)}`;
  test.each([
    [`{${CALL},"input":{"body":{"id":9007199254740993}}}`, "/input/body/id"],
    [`{${CALL},"input":{"body":{"a":[1e400]}}}`, "/input/body/a/0"],
    [`{${CALL},"input":{"body":${DEEP}}}`, "/input/body/0/0/0/0/0/0/0/0"],
    [`{${CALL},"expect":{"jsonpath":{"path":"$","value":${DEEP}}}}`, "/expect/jsonpath/value/0/0/0/0/0/0"],
    [`{${CALL},"expect":{"jsonpath":{"path":"$","value":9007199254740993}}}`, "/expect/jsonpath/value"],
    [`{${CALL},"expect":{"jsonpath":{"path":"$[?@.a==9007199254740993]"}}}`, "/expect/jsonpath/path"],
    [`{${CALL},"expect":{"schema":{"const":9007199254740993}}}`, "/expect/schema/const"],
  ])("%#: what another value would stand for is refused at its place", async (body, pointer) => {
    const answer = await serving.get("/v1/evaluate", { method: "POST", body });
    expect([answer.status, ((await answer.json()) as { errors: object[] }).errors]).toEqual([
      400,
      [expect.objectContaining({ pointer })],
    ]);
  });

  test.each([
    [{ body: "a", base64: "YQ==" }, "/base64"],
    [{ base64: "*" }, "/base64"],
    [{ status: 99 }, "/status"],
    [{ body: "x".repeat(262_145) }, "/body"],
    [{ schema: { description: "x".repeat(100_001) } }, "/schema"],
    [{ capability_id: "cap_x" }, "/capability_id"],
    [{ input: { query: { a: "1" } } }, "/input"],
    [{ expect: { regex: "(?=a)" } }, "/expect/regex"],
    [{ expect: {} }, "/expect"],
  ])("%#: refused at %s", async (body, pointer) => {
    const answer = await asked(body);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ errors: [expect.objectContaining({ pointer })] });
  });

  test("an endpoint that the record does not know, and a body past the bound", async () => {
    expect((await asked({ capability_id: `cap_${"0".repeat(26)}` })).status).toBe(404);
    expect((await asked({ body: "x".repeat(1024 * 1024) })).status).toBe(413);
  });

  test("one client has so many a minute", async () => {
    const other = await servingOver(record, { limits: { evaluations_per_minute: 1 } });
    const ask = () => other.get("/v1/evaluate", { method: "POST", body: '{"status":204}' });
    expect([(await ask()).status, (await ask()).status]).toEqual([200, 429]);
  });
});
