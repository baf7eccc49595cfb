const CHALLENGE = /just a moment|attention required|captcha|cf-chl|_incapsula_|ddos protection|verify you are human/i;

/**
 * Was this a wall (403, 429, a bot check) and no answer of the endpoint? A challenge page is only believed where JSON
 * was asked and HTML came with a status that such pages use.
 */
export function isWall(status: number, headers: Record<string, string>, body: Uint8Array): boolean {
  if (status === 403 || status === 429) return true;
  if (headers["cf-mitigated"] === "challenge") return true;
  if (status !== 503 && status !== 401 && status !== 200) return false;
  if (!/text\/html/i.test(headers["content-type"] ?? "")) return false;
  return CHALLENGE.test(Buffer.from(body.subarray(0, 16_384)).toString("latin1"));
}
