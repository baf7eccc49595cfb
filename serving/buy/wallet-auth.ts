import { z } from "zod";
import { isSignedBy, wrongMoment } from "../../pipelines/corrections/dispute.ts";
import { Problem } from "../http/problem.ts";

const Credential = z.strictObject({
  address: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  at: z.string().max(40),
  signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/),
});

/** Longest credential: some 300 characters are used. */
const MAX_CREDENTIAL = 1_000;
const VALID = { ms: 300_000, words: "5 minutes" };

/**
 * What a wallet signs (EIP-191, personal_sign) to read its orders. It names the service, so that it opens nothing anywhere
 * else, and a moment, so that it does not for ever.
 * @param address lower case @param at RFC 3339 with milliseconds, UTC
 */
export const ordersText = (service: string, address: string, at: string): string =>
  `I want to read the orders of my wallet.\nService: ${service}\nAddress: ${address}\nAt: ${at}`;

const refuse = (detail: string): never => {
  throw new Problem("not_the_wallet", detail, { headers: { "www-authenticate": "Wallet" } });
};

function credentialOf(headers: Headers): z.infer<typeof Credential> {
  const header = headers.get("authorization") ?? refuse("send Authorization: Wallet and a credential that it signed");
  const text = /^wallet +([A-Za-z0-9_-]+)={0,2}$/i.exec(header.trim().slice(0, MAX_CREDENTIAL))?.[1];
  if (text === undefined) return refuse("Authorization must be Wallet and base64url of JSON {address, at, signature}");
  try {
    return Credential.parse(JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
  } catch {
    return refuse("the credential is no base64url of JSON {address, at, signature}");
  }
}

/**
 * Holds when the request carries `Authorization: Wallet <credential>` that this address signed for this service within five
 * minutes of now. Keys of wallets only: a contract's signature (ERC-1271) would need a chain.
 * @throws Problem not_the_wallet, in words
 */
export async function provesWallet(headers: Headers, address: string, service: string, now: Date): Promise<void> {
  const credential = credentialOf(headers);
  const asked = address.toLowerCase();
  if (credential.address.toLowerCase() !== asked) refuse("the credential is another wallet's");
  const wrong = wrongMoment(credential.at, now, VALID);
  if (wrong !== null) refuse(`at ${wrong}`);
  const { at, signature } = credential;
  if (!(await isSignedBy(asked, ordersText(service, asked, at), signature))) {
    refuse(`the signature is not ${asked}'s over the text for ${service}`);
  }
}
