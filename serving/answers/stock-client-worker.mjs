/**
 * The thread of stock-client.ts: the protocol's own client, as it comes. It reads what a seller sent, chooses and signs
 * with a key that it made itself, that holds nothing and that nobody knows; the signature is thrown away here.
 */
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { answering } from "../../infra/bounded-thread-half.mjs";

const signer = privateKeyToAccount(generatePrivateKey());
/** Characters of an error that are worth telling; the client's own may hold the whole of what the seller sent. */
const MAX_SAYS = 300;

const saysOf = (error) => String(error instanceof Error ? error.message : error).slice(0, MAX_SAYS);

function jsonOf(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** Place of the chosen entry among those offered: of version 2 it is named, of version 1 told by scheme and network. */
function placeOf({ accepts }, payload) {
  const { accepted } = payload;
  if (accepted) return accepts.indexOf(accepted);
  return accepts.findIndex(({ scheme, network }) => scheme === payload.scheme && network === payload.network);
}

async function sign(required, spendControls) {
  const client = registerExactEvmScheme(new x402Client(), { signer });
  if (spendControls === false) client.setSpendControls(false);
  const payload = await client.createPaymentPayload(required);
  return placeOf(required, payload);
}

async function answer({ headers, body }) {
  let required;
  try {
    const http = new x402HTTPClient(new x402Client());
    required = http.getPaymentRequiredResponse((name) => headers[name.toLowerCase()] ?? null, jsonOf(body));
  } catch (error) {
    return { did: "read_nothing", says: saysOf(error) };
  }
  let says;
  try {
    return { did: "signed", place: await sign(required) };
  } catch (error) {
    says = saysOf(error);
  }
  try {
    return { did: "signed_without_limits", place: await sign(required, false), says };
  } catch (error) {
    return { did: "refused", says: saysOf(error) };
  }
}

answering(async (asked) => {
  try {
    return await answer(asked);
  } catch (error) {
    return { did: "refused", says: saysOf(error) };
  }
});
