/**
 * The thread of stock-client.ts. It runs the protocol's own client without any settings: it reads a seller's 402,
 * chooses an offer and signs it with a random key that holds no money. The signature is thrown away.
 */
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { serveQuestions } from "../../infra/bounded-thread-half.mjs";

const signer = privateKeyToAccount(generatePrivateKey());
/**
 * Longest text of an error that is returned, characters: the client's own errors may hold everything that the seller
 * sent.
 */
const MAX_SAYS = 300;

const errorText = (error) => String(error instanceof Error ? error.message : error).slice(0, MAX_SAYS);

function jsonOf(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/**
 * Returns the index of the chosen entry. A version 2 payload holds it; in version 1 it is found by scheme and network.
 */
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
    return { did: "read_nothing", says: errorText(error) };
  }
  let says;
  try {
    return { did: "signed", place: await sign(required) };
  } catch (error) {
    says = errorText(error);
  }
  try {
    return { did: "signed_without_limits", place: await sign(required, false), says };
  } catch (error) {
    return { did: "refused", says: errorText(error) };
  }
}

serveQuestions(async (asked) => {
  try {
    return await answer(asked);
  } catch (error) {
    return { did: "refused", says: errorText(error) };
  }
});
