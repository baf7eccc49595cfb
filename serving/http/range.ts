/** Bytes [start, end) of an object. */
export interface ByteRange {
  start: number;
  end: number;
}

/**
 * One byte range of a Range header (RFC 9110 section 14.2). null: send the whole (no header, another unit, several
 * ranges, malformed, or If-Range names other bytes). "unsatisfiable": 416.
 */
export function parseRange(headers: Headers, size: number, etag: string): ByteRange | "unsatisfiable" | null {
  const header = headers.get("range");
  const match = header === null ? null : /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim());
  if (!match || (match[1] === "" && match[2] === "")) return null;
  const condition = headers.get("if-range");
  if (condition !== null && condition.trim() !== etag) return null;
  if (match[1] === "") {
    const length = Math.min(Number(match[2]), size);
    return length === 0 ? "unsatisfiable" : { start: size - length, end: size };
  }
  const start = Number(match[1]);
  const end = match[2] === "" ? size : Math.min(Number(match[2]) + 1, size);
  if (match[2] !== "" && Number(match[2]) < start) return null;
  return start >= size ? "unsatisfiable" : { start, end };
}
