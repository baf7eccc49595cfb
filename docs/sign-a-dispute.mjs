// Signs a dispute, or the wish for a re-test: node sign-a-dispute.mjs statement.json > signed.json
// PAYEE_KEY holds the private key of the address that the endpoint is paid at. It never leaves this machine.
//   0x and 64 hex digits: an Ethereum wallet (npm install viem)
//   base58, as wallets export it, or the numbers of a keygen file in brackets: a Solana wallet (nothing to install)
import { createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";

if (process.argv.length < 3 || !process.env.PAYEE_KEY) {
  console.error("usage: PAYEE_KEY=.. node sign-a-dispute.mjs statement.json > signed.json");
  process.exit(2);
}
const members = Object.entries(JSON.parse(readFileSync(process.argv[2], "utf8")));
// RFC 8785: members in the order of their names, no spaces. JSON.stringify prints exactly that for texts and null.
const statement = JSON.stringify(Object.fromEntries(members.sort(([a], [b]) => (a < b ? -1 : 1))));
const key = process.env.PAYEE_KEY;
const { pay_to, signature } = key.startsWith("0x") ? await ethereum() : solana();
console.log(JSON.stringify({ ...JSON.parse(statement), pay_to, signature }));

async function ethereum() {
  const { privateKeyToAccount } = await import("viem/accounts");
  const account = privateKeyToAccount(key);
  return { pay_to: account.address, signature: await account.signMessage({ message: statement }) };
}

/** A Solana key is 64 bytes: the seed and the public key. It signs the statement's UTF-8 bytes (Ed25519). */
function solana() {
  const bytes = key.startsWith("[") ? Buffer.from(JSON.parse(key)) : fromBase58(key);
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), bytes.subarray(0, 32)]);
  const seed = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  return { pay_to: toBase58(bytes.subarray(32, 64)), signature: toBase58(sign(null, Buffer.from(statement), seed)) };
}

function fromBase58(text) {
  const value = [...text].reduce((sum, letter) => sum * 58n + BigInt(alphabet().indexOf(letter)), 0n);
  return Buffer.from(value.toString(16).padStart(128, "0"), "hex");
}

function toBase58(bytes) {
  let text = "";
  for (let value = BigInt(`0x${bytes.toString("hex")}`); value > 0n; value /= 58n) {
    text = alphabet()[Number(value % 58n)] + text;
  }
  return "1".repeat(bytes.findIndex((byte) => byte !== 0)) + text;
}

function alphabet() {
  return "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
}
