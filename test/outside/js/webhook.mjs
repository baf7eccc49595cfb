// Verifies the message on standard input (JSON: headers, body) under the secret argv[2]; fails if it is not genuine.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

const { headers, body } = JSON.parse(readFileSync(0, "utf8"));
try {
  new Webhook(process.argv[2]).verify(body, headers);
} catch {
  process.exit(1);
}
