import { sha256 } from "../../infra/canonical.ts";
import { Problem, validate } from "../http/problem.ts";
import { JSON_TYPE, reply } from "../http/reply.ts";
import { BodyParams, ReceiptParams, ReceiptProof } from "../schemas/evidence.ts";
import { proofOfLeaf } from "../work/receipts.ts";
import { type Operation, replyJson } from "./operation.ts";

/** Cache-Control of a proof. Clients may cache it, since a proof against an older checkpoint stays valid. */
const CACHE = "public, max-age=60";

/** Retry-After for a receipt that is not in the log yet, seconds: the interval at which leaves are published. */
const RETRY_S = "10";

/**
 * GET /v1/web/evidence/receipts/{sha256}: the proof that docs/verify-evidence.mjs needs besides the answer and the
 * keys.
 */
const receiptProof: Operation = {
  id: "receiptProof",
  needsRecord: true,
  path: "/v1/web/evidence/receipts/:sha256",
  summary: "The proof that the log holds a receipt of web/evidence: leaf, path to the root, and the signed tree head",
  params: ReceiptParams,
  answer: ReceiptProof,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE,
  errors: ["not_found"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { sha256: hash } = validate(ReceiptParams, call.params);
    const { view, snapshot } = call.service.follower;
    const index = view.receipts.leafIndexOf(hash);
    if (index === undefined || !snapshot || index >= snapshot.head.size) {
      const detail = "the log holds no receipt with this hash, or not yet: a new one is there within two minutes";
      throw new Problem("not_found", detail, { headers: { "retry-after": RETRY_S } });
    }
    return replyJson(call, JSON.stringify(await proofOfLeaf(index, snapshot)), CACHE);
  },
};

/** GET /v1/web/evidence/bodies/{id}: the fetched bytes, for anybody who knows the address. */
const evidenceBody: Operation = {
  id: "evidenceBody",
  path: "/v1/web/evidence/bodies/:id",
  summary: "A body that web/evidence fetched, for 30 days; the address is a secret of its buyer",
  params: BodyParams,
  type: "application/octet-stream",
  evenWhenOverloaded: true,
  errors: ["not_found", "unavailable"],
  limiter: (service) => service.readLimiter,
  async run({ service, request, params, client, limitHeaders }) {
    const { id } = validate(BodyParams, params);
    const body = await service.work?.receipts?.readBody(id);
    if (!body) throw new Problem("not_found", "no body is kept under this id, or not any more: it is kept for 30 days");
    service.streams.admit(client);
    service.streams.charge(client, body.length);
    return reply(request, body, {
      type: "application/octet-stream",
      cache: "private, no-store",
      headers: {
        ...limitHeaders,
        // A stranger chose these bytes, so a browser must download them and not show them as a page of this service.
        "content-disposition": "attachment",
        "referrer-policy": "no-referrer",
        "repr-digest": `sha-256=:${sha256(body).toString("base64")}:`,
      },
    });
  },
};

/** Operations that return the proof and the bytes behind an answer of POST /v1/web/evidence. */
export const EVIDENCE: readonly Operation[] = [receiptProof, evidenceBody];
