import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConfigError, loadConfig } from "../../infra/config.ts";
import { redact } from "../../infra/secrets.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "config-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const fileWith = (settings: unknown): string => {
  const path = join(dir, "touchstone.json");
  writeFileSync(path, typeof settings === "string" ? settings : JSON.stringify(settings));
  return path;
};

test("defaults stand where nothing is said", () => {
  const config = loadConfig(fileWith({}), {});
  expect(config).toMatchObject({ port: 8402, log_partitions: 2, allow_loopback: false, spend: { per_call: "0.10" } });
});

test("the environment wins over the file, nested settings and lists included", () => {
  const file = fileWith({ port: 1000, spend: { per_call: "0.50", total: "9.00" } });
  const env = {
    TOUCHSTONE_PORT: "2000",
    TOUCHSTONE_SPEND_PER_CALL: "0.20",
    TOUCHSTONE_SPEND_NEW_SHARE: "0.5",
    TOUCHSTONE_CATALOGUES: '["http://a.example/"]',
  };
  const config = loadConfig(file, env);
  expect(config.port).toBe(2000);
  expect(config.spend).toMatchObject({ per_call: "0.20", total: "9.00", new_share: "0.5", per_domain_day: "2.50" });
  expect(config.catalogues).toEqual(["http://a.example/"]);
});

test("a catalogue is an address, a known name, or all that is to be said of it; its keys are secrets", () => {
  const own = { url: "https://b.example/x", headers: { authorization: "Bearer long-secret" }, pause_ms: 1_000 };
  const { catalogues } = loadConfig(fileWith({ catalogues: ["https://a.example/", "cdp-bazaar", own] }), {});
  expect(catalogues).toEqual([
    "https://a.example/",
    expect.objectContaining({ url: expect.stringContaining("api.cdp.coinbase.com"), kind: "bazaar" }),
    { ...own, kind: "bazaar", curated: false },
  ]);
  expect(redact("it said Bearer long-secret")).toBe("it said [hidden]");
});

test.each([
  ["a name of no catalogue", { catalogues: ["bazar"] }, {}, "catalogues.0"],
  ["a key over plain http", { catalogues: [{ url: "http://a.example", headers: { k: "v" } }] }, {}, "catalogues.0"],
  ["a kind that is none", { catalogues: [{ url: "https://a.example", kind: "rss" }] }, {}, "catalogues.0"],
  ["a port of strangers that is none", { ports: [0] }, {}, "ports.0"],
  ["a port that is none", { port: 70000 }, {}, "port"],
  ["a word for a number", {}, { TOUCHSTONE_PORT: "many" }, "TOUCHSTONE_PORT (environment)"],
  ["partitions that are no power of two", { log_partitions: 3 }, {}, "log_partitions"],
  ["money that is none", {}, { TOUCHSTONE_SPEND_TOTAL: "1" }, "TOUCHSTONE_SPEND_TOTAL"],
  ["a share of more than all", { spend: { new_share: "1.1" } }, {}, "spend.new_share"],
  ["a share that is a number", { spend: { new_share: 0.2 } }, {}, "spend.new_share"],
  ["a setting that does not exist", { prot: 1 }, {}, "prot"],
  ["a variable that does not exist", {}, { TOUCHSTONE_PROT: "1" }, "TOUCHSTONE_PROT"],
  ["a priority of an address", { observe: { priority: { "https://a.example/x": 1 } } }, {}, "observe.priority"],
  ["a priority of no capability", { observe: { priority: { cap_X: 1 } } }, {}, "observe.priority"],
  ["a base address of another scheme", { base_url: "javascript:alert(1)" }, {}, "base_url"],
  ["a proxy that is no address", { limits: { trusted_proxies: ["nope"] } }, {}, "limits.trusted_proxies.0"],
  ["a proxy's network that is none", { limits: { trusted_proxies: ["10.0.0.0/33"] } }, {}, "such as 10.0.0.0/8"],
  ["a proxy's network cut short", {}, { TOUCHSTONE_LIMITS_TRUSTED_PROXIES: '["10.0/8"]' }, "TRUSTED_PROXIES_0"],
  ["a file that is no JSON", "{", {}, "touchstone.json"],
])("%s is refused and named", (_name, settings, env, named) => {
  const file = fileWith(settings);
  expect(() => loadConfig(file, env)).toThrow(ConfigError);
  expect(() => loadConfig(file, env)).toThrow(named);
});

test.each([
  ["TOUCHSTONE_REVISION", "1234567", { revision: "1234567" }],
  ["TOUCHSTONE_REVISION", "12e4567", { revision: "12e4567" }],
  ["TOUCHSTONE_REVISION", "1.10", { revision: "1.10" }],
  ["TOUCHSTONE_REVISION", "true", { revision: "true" }],
  ["TOUCHSTONE_REVISION", "null", { revision: null }],
  ["TOUCHSTONE_DATA_DIR", "2026", { data_dir: "2026" }],
  ["TOUCHSTONE_DATA_DIR", "null", { data_dir: "null" }],
  ["TOUCHSTONE_SELL_OPEN", "20.00", { sell: expect.objectContaining({ open: "20.00" }) }],
  ["TOUCHSTONE_STORES_PRIVATE_KEY", "1234", { stores: expect.objectContaining({ private_key: "1234" }) }],
  ["TOUCHSTONE_CHAIN_CONFIRMATIONS", "12", { chain: expect.objectContaining({ confirmations: 12 }) }],
  ["TOUCHSTONE_CHAIN_CONFIRMATIONS", "safe", { chain: expect.objectContaining({ confirmations: "safe" }) }],
  ["TOUCHSTONE_STORES", '{"region":"eu-1"}', { stores: expect.objectContaining({ region: "eu-1" }) }],
])("a variable is taken as its setting's type: %s=%s", (name, text, settings) => {
  expect(loadConfig(fileWith({}), { [name]: text })).toMatchObject(settings);
});

test.each([
  ["with commas", "TOUCHSTONE_CONTROL_URLS", "https://a.example/,https://b.example/"],
  ["one address, bare", "TOUCHSTONE_CONTROL_URLS", "https://a.example/"],
  ["JSON that is broken", "TOUCHSTONE_CATALOGUES", '["https://a.example/",]'],
  ["one number", "TOUCHSTONE_PORTS", "8080"],
  ["quotes that a shell kept", "TOUCHSTONE_LIMITS_TRUSTED_PROXIES", "'[\"127.0.0.1\"]'"],
  ["nothing", "TOUCHSTONE_OBSERVE_BLIND_ADDRESSES", ""],
  ["networks as a name", "TOUCHSTONE_NETWORKS", "eip155:8453"],
  ["an object that is none", "TOUCHSTONE_OBSERVE_PRIORITY", "api.example.com=1"],
  ["an object that may be null", "TOUCHSTONE_PRICE_REFERENCE", "https://a.example/{base}"],
])("a list or an object in a variable, %s: the variable and the form that it has to have", (_, name, text) => {
  expect(() => loadConfig(fileWith({}), { [name]: text })).toThrow(
    new RegExp(`${name} \\(environment\\): expected an? (?:list|object) as (?:a )?JSON`),
  );
});

test("what is wrong inside of a list says which of it", () => {
  const env = { TOUCHSTONE_CONTROL_URLS: '["https://a.example/","b.example"]' };
  expect(() => loadConfig(fileWith({}), env)).toThrow(
    "TOUCHSTONE_CONTROL_URLS_1 (environment): expected an address such as https://",
  );
});

test("priorities are named as addresses and capabilities are", () => {
  const cap = `cap_${"0".repeat(26)}`;
  const priority = { "Api.Example.com": 5, "b.example:443": 2, "b.example:8443": 1, "bücher.example": 3, [cap]: -1 };
  expect(loadConfig(fileWith({ observe: { priority } }), {}).observe.priority).toEqual({
    ...{ "api.example.com": 5, "b.example": 2, "b.example:8443": 1, "xn--bcher-kva.example": 3, [cap]: -1 },
  });
});

test("a file that was asked for and is not there is an error", () => {
  expect(() => loadConfig(join(dir, "none.json"), {})).toThrow("there is no such file");
});

test("every wrong setting is named at once", () => {
  const file = fileWith({ port: -1, log_partitions: 5 });
  expect(() => loadConfig(file, {})).toThrow(/port[\s\S]*log_partitions/);
});

test.each([
  "https://record.example/?x=1",
  "https://record.example/?",
  "https://record.example/#a",
  "https://u:p@record.example",
])("base_url %s is refused: it would be in the log's name", (base_url) => {
  expect(() => loadConfig(fileWith({ base_url }), {})).toThrow("without a query, a fragment and credentials");
});

test("base_url keeps its path as it is", () => {
  for (const base_url of ["https://record.example/touch/@stone", "http://127.0.0.1:8402/"])
    expect(loadConfig(fileWith({ base_url }), {}).base_url).toBe(base_url);
});

test.each([
  [{ base_url: "record.example" }, "base_url (FILE): expected an address such as https://host.example/"],
  [{ control_urls: ["ftp://x"] }, "control_urls.0 (FILE): expected an address such as https://host.example/"],
  [
    { catalogues: [{ url: "b.example" }] },
    "catalogues.0.url (FILE): expected an address such as https://host.example/",
  ],
  [
    { networks: [{ id: "eip155:8453", rpc_urls: ["node-a.example"] }] },
    "networks.0.rpc_urls.0 (FILE): expected an address such as https://host.example/",
  ],
  [{ control_urls: "https://one.example" }, "control_urls (FILE): Invalid input: expected array, received string"],
  [{ spend: { per_day: 25 } }, 'spend.per_day (FILE): expected money such as "0.10"'],
  [{ base_urls: "https://a.example" }, "the file (FILE): there is no setting base_urls; did you mean base_url?"],
  [{ prot: 1, zzz: 1 }, "the file (FILE): there is no setting prot, zzz; did you mean port?"],
  [{ spend: { per_dya: "1.00" } }, "spend (FILE): there is no setting per_dya; did you mean per_day?"],
  [
    { networks: [{ id: "eip155:8453", rpc_url: "x", rpc_urls: ["https://a.example"] }] },
    "networks.0 (FILE): there is no setting rpc_url; did you mean rpc_urls?",
  ],
  [{ "[1]": 1 }, "the file (FILE): there is no setting [1]"],
])("a wrong value is one problem, which says what to write: %j", (settings, problem) => {
  const file = fileWith(settings);
  expect(() => loadConfig(file, {})).toThrow(
    expect.objectContaining({ problems: [problem.replace("FILE", file)] }) as unknown as Error,
  );
});

test.each([
  ["TOUCHSTONE_PROT", "; did you mean TOUCHSTONE_PORT?"],
  ["TOUCHSTONE_SPEND_PER_DYA", "; did you mean TOUCHSTONE_SPEND_PER_DAY?"],
  ["TOUCHSTONE_SOMETHING_ELSE_ENTIRELY", ""],
])("the unknown variable %s names the near one", (name, near) => {
  expect(() => loadConfig(fileWith({}), { [name]: "1" })).toThrow(
    expect.objectContaining({
      problems: [`${name} (environment): there is no such setting${near}`],
    }) as unknown as Error,
  );
});
