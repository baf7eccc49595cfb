// Signs a dispute: node sign-a-dispute.mjs statement.json > dispute.json   (npm install viem)
// PAYEE_KEY holds the private key of the address that the endpoint is paid at. It never leaves this machine.
import { readFileSync } from "node:fs";
import { privateKeyToAccount } from "viem/accounts";

const { at, capability_id, record_id, says, service } = JSON.parse(readFileSync(process.argv[2], "utf8"));
// RFC 8785: members in this order, no spaces. JSON.stringify prints exactly that for texts and null.
const statement = JSON.stringify({ at, capability_id, record_id, says, service });
const account = privateKeyToAccount(process.env.PAYEE_KEY);
const signature = await account.signMessage({ message: statement });
console.log(JSON.stringify({ ...JSON.parse(statement), pay_to: account.address, signature }));
