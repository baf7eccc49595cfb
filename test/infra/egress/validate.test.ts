import { networkInterfaces } from "node:os";
import { describe, expect, it } from "vitest";
import { isSameAddress, ownRanges, parseAddress, validateAddress } from "../../../infra/egress/address.ts";
import { createEgress, type EgressOptions } from "../../../infra/egress/create.ts";
import type { RefusalReason } from "../../../infra/egress/egress.ts";
import { fc } from "../../helpers/histories.ts";

const production = createEgress({ allowLoopback: false, userAgent: "test" });
const validate = (url: string, options?: Partial<EgressOptions>): RefusalReason | "ok" => {
  const egress = options ? createEgress({ allowLoopback: false, userAgent: "test", ...options }) : production;
  const verdict = egress.validate(url);
  return verdict.ok ? "ok" : verdict.reason;
};

const rules = { allowLoopback: false, own: ownRanges([]) };

/** IANA's special-purpose registries and the forms that egress.md names. */
const FORBIDDEN = `
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255
169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1
198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
192.31.196.1 192.52.193.1 192.175.48.1
:: ::1 ::7f00:1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:a00:1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 ::ffff:168.63.129.16
64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::168.63.129.16 64:ff9b:1::1 64:ff9b:1::8.8.8.8
100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1
2002:7f00:1:: 2002:808:808::1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1 1fff:ffff::1 fc00::1 fd00:ec2::254 fd20:ce::254
fe80::1 fe80::1%eth0 2606:4700::1111%eth0 fec0::1 ff02::1 ffff::1
1 127.1 0x7f000001 2130706433 localhost 8.8.8.8:80 8.8.8.8/8`
  .trim()
  .split(/\s+/);
const ALLOWED = `
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1 168.63.129.15
168.63.129.17 169.253.255.255 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 198.17.255.255 198.20.0.1
223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b::808:808 2000::1 2001:200::1 2001:4860:4860::8888
2003::1 2606:4700:4700::1111 2a00:1450::1 3ffe:ffff::1 3fff:1000::1`
  .trim()
  .split(/\s+/);

describe("addresses", () => {
  it.each(FORBIDDEN)("refused: %s", (address) => {
    expect(validateAddress(address, rules)).toMatchObject({ ok: false, reason: "address" });
  });
  it.each(ALLOWED)("allowed: %s", (address) => expect(validateAddress(address, rules)).toEqual({ ok: true }));

  it.each(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])("development alone allows %s", (address) => {
    expect(validateAddress(address, { ...rules, allowLoopback: true })).toEqual({ ok: true });
  });
  it.each(["0.0.0.0", "::", "10.0.0.1", "169.254.169.254", "fd00::1", "::7f00:1", "168.63.129.16"])(
    "not even development allows %s",
    (address) => expect(validateAddress(address, { ...rules, allowLoopback: true }).ok).toBe(false),
  );

  it.each([
    ["9.9.9.9", "9.9.9.9"],
    ["9.9.9.9", "::ffff:9.9.9.9"],
    ["9.9.9.9", "64:ff9b::909:909"],
    ["::ffff:9.9.9.9", "9.9.9.9"],
    ["2a00:1450::1", "2a00:1450:0:0::1"],
    ["9.9.8.0/22", "9.9.9.9"],
    ["2a00:1450::/32", "2a00:1450:dead::1"],
  ])("own %s covers %s", (own, address) => {
    const verdict = validateAddress(address, { allowLoopback: false, own: ownRanges([own]) });
    expect(verdict).toMatchObject({ ok: false, reason: "own_address" });
  });

  it("the addresses of this machine's interfaces are own ones, loopback in development too", () => {
    const faces = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    expect(faces.length).toBeGreaterThan(0);
    for (const face of faces) expect(validateAddress(face.address, rules)).toMatchObject({ ok: false });
    expect(validateAddress("127.0.0.1", { allowLoopback: true, own: ownRanges([]) }).ok).toBe(true);
  });

  it.each(["", "example.com", "10.0.0", "10.0.0.0/33", "fe80::1%eth0"])(
    "own address '%s' is an error at start",
    (own) => {
      expect(() => ownRanges([own])).toThrow(TypeError);
    },
  );

  it("one address in two forms is one address", () => {
    expect(isSameAddress("::ffff:8.8.8.8", "8.8.8.8")).toBe(true);
    expect(isSameAddress("2a00::1", "2a00:0::0:1")).toBe(true);
    expect(isSameAddress("8.8.8.8", "8.8.4.4")).toBe(false);
    expect(isSameAddress(undefined, "8.8.8.8")).toBe(false);
    expect(isSameAddress("nonsense", "nonsense")).toBe(false);
  });

  it("whatever form carries an IPv4 address, it is validated as that or refused", () => {
    const v4 = fc.ipV4();
    const forms = fc.constantFrom("::ffff:", "64:ff9b::", "::", "::ffff:0:", "64:ff9b:1::");
    fc.assert(
      fc.property(v4, forms, (address, form) => {
        const verdict = validateAddress(form + address, rules).ok;
        if (verdict) expect(validateAddress(address, rules).ok).toBe(true);
        if (form === "::" || form === "::ffff:0:" || form === "64:ff9b:1::") expect(verdict).toBe(false);
        if (form === "::ffff:" || form === "64:ff9b::") expect(verdict).toBe(validateAddress(address, rules).ok);
      }),
    );
  });

  it("parseAddress never throws", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.ipV6()), (text) => {
        expect(() => parseAddress(text)).not.toThrow();
      }),
    );
  });
});

describe("urls", () => {
  const table: [string, RefusalReason | "ok"][] = [
    ["http://example.com/", "ok"],
    ["https://example.com:443/a?b=c#d", "ok"],
    ["https://example.com:80/", "ok"],
    ["http://EXAMPLE.com./", "ok"],
    ["https://bücher.example/", "ok"],
    ["http://a_b.example.com/", "ok"],
    ["http://8.8.8.8/", "ok"],
    ["http://[2606:4700::1111]/", "ok"],
    ["", "bad_url"],
    ["example.com", "bad_url"],
    ["//example.com", "bad_url"],
    ["http://", "bad_url"],
    ["http://exa mple.com/", "bad_url"],
    ["http://example.com:65536/", "bad_url"],
    ["http://exam\tple.com/", "bad_url"],
    ["http://example.com/\r\nHost: evil", "bad_url"],
    ["http://example.com/\0", "bad_url"],
    ["http://256.1.1.1/", "bad_url"],
    ["http://1.2.3.4.5/", "bad_url"],
    ["http://[fe80::1%25eth0]/", "bad_url"],
    [`http://example.com/${"a".repeat(9_000)}`, "bad_url"],
    ["ftp://example.com/", "scheme"],
    ["file:///etc/passwd", "scheme"],
    ["javascript:alert(1)", "scheme"],
    ["data:text/plain,x", "scheme"],
    ["ws://example.com/", "scheme"],
    ["gopher://127.0.0.1:25/x", "scheme"],
    ["http://user@example.com/", "userinfo"],
    ["http://user:pass@example.com/", "userinfo"],
    ["http://:pass@example.com/", "userinfo"],
    ["http://example.com@127.0.0.1/", "userinfo"],
    ["http://example.com:8080/", "port"],
    ["http://example.com:22/", "port"],
    ["http://example.com:0/", "port"],
    ["http://8.8.8.8:6379/", "port"],
    ["http://localhost/", "host"],
    ["http://LOCALHOST./", "host"],
    ["http://a.localhost/", "host"],
    ["http://printer.local/", "host"],
    ["http://metadata.google.internal/", "host"],
    ["http://internal/", "host"],
    ["http://x.onion/", "host"],
    ["http://router.home.arpa/", "host"],
    ["http://intranet/", "host"],
    ["http://a..b.com/", "host"],
    ["http://example.com../", "host"],
    ["http://-a.com/", "host"],
    ["http://a*b.com/", "host"],
    [`http://${"a".repeat(64)}.com/`, "host"],
    [`http://${"a.".repeat(127)}com/`, "host"],
    // One address, many ways to write it.
    ["http://127.0.0.1/", "address"],
    ["http://127.0.0.1./", "address"],
    ["http://2130706433/", "address"],
    ["http://0177.0.0.1/", "address"],
    ["http://017700000001/", "address"],
    ["http://0x7f.0.0.1/", "address"],
    ["http://0x7f000001/", "address"],
    ["http://127.1/", "address"],
    ["http://127.0.1/", "address"],
    ["http://１２７.０.０.１/", "address"],
    ["http://①②⑦.0.0.1/", "address"],
    ["http://127。0。0。1/", "address"],
    ["http://%31%32%37.1/", "address"],
    ["http:/\\/127.0.0.1/", "address"],
    ["http://0/", "address"],
    ["http://[::1]/", "address"],
    ["http://[::]/", "address"],
    ["http://[::ffff:127.0.0.1]/", "address"],
    ["http://[::127.0.0.1]/", "address"],
    ["http://[64:ff9b::7f00:1]/", "address"],
    ["http://[2002:7f00:1::]/", "address"],
    ["http://[2001::1]/", "address"],
    ["http://169.254.169.254/latest/meta-data/", "address"],
    ["http://168.63.129.16/", "address"],
    ["http://2822734096/", "address"],
    ["http://[fd00:ec2::254]/", "address"],
  ];
  it.each(table)("%j: %s", (url, verdict) => expect(validate(url)).toBe(verdict));

  it("own addresses, configured ports", () => {
    expect(validate("http://9.9.9.9/", { ownAddresses: ["9.9.9.9"] })).toBe("own_address");
    expect(validate("http://151587081/", { ownAddresses: ["9.9.9.9"] })).toBe("own_address");
    expect(validate("http://example.com:8402/", { extraPorts: [8402] })).toBe("ok");
    expect(validate("http://example.com:8403/", { extraPorts: [8402] })).toBe("port");
  });

  it.each<[string, RefusalReason | "ok"]>([
    ["http://127.0.0.1:8402/", "ok"],
    ["http://localhost:3000/", "ok"],
    ["http://shop.localhost:3000/", "ok"],
    ["http://[::1]:9/", "ok"],
    ["http://market/", "ok"],
    ["http://127.0.0.1:0/", "port"],
    ["http://10.0.0.1/", "address"],
    ["http://169.254.169.254/", "address"],
    ["http://printer.local/", "host"],
    ["http://user@localhost/", "userinfo"],
    ["ftp://localhost/", "scheme"],
  ])("in development, %s: %s", (url, verdict) => expect(validate(url, { allowLoopback: true })).toBe(verdict));

  it("validating text never throws, and what is allowed is http(s) without user info", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.webUrl(),
          fc.string().map((s) => `http://${s}/`),
        ),
        (text) => {
          if (validate(text) !== "ok") return;
          const url = new URL(text);
          expect(url.protocol).toMatch(/^https?:$/);
          expect(url.username + url.password).toBe("");
        },
      ),
    );
  });

  it("an unsafe user agent is an error at start", () => {
    expect(() => createEgress({ allowLoopback: false, userAgent: "a\r\nb: c" })).toThrow(TypeError);
  });
});
