import { startLocalChain } from "../../../../infra/rails/chain/local-chain.ts";

// Starts a chain and waits to be killed: what is left behind then is the test's question.
const chain = await startLocalChain();
process.stdout.write(`${JSON.stringify({ pid: chain.pid })}\n`);
