import { deflateSync } from "node:zlib";

/** PDFs written by hand, object by object (ISO 32000-1 section 7): what a test wants to be in one, and no more. */

/** Bytes of a document of these objects, numbered from 1; the first is the catalog. */
export function pdfOf(objects: readonly (string | Buffer)[], trailer = ""): Buffer {
  const parts: Buffer[] = [Buffer.from("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "latin1")];
  const offsets: number[] = [];
  let at = parts[0]!.length;
  const put = (part: Buffer) => {
    parts.push(part);
    at += part.length;
  };
  for (const [i, object] of objects.entries()) {
    offsets.push(at);
    put(Buffer.from(`${i + 1} 0 obj\n`));
    put(Buffer.isBuffer(object) ? object : Buffer.from(object, "latin1"));
    put(Buffer.from("\nendobj\n"));
  }
  const from = at;
  const rows = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  put(Buffer.from(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows}`));
  put(Buffer.from(`trailer\n<< /Size ${objects.length + 1} /Root 1 0 R ${trailer} >>\nstartxref\n${from}\n%%EOF\n`));
  return Buffer.concat(parts);
}

/** A stream, packed as PDF's FlateDecode has it. */
export function flate(text: string | Buffer): Buffer {
  const packed = deflateSync(text, { level: 9 });
  return Buffer.concat([
    Buffer.from(`<< /Length ${packed.length} /Filter /FlateDecode >>\nstream\n`),
    packed,
    Buffer.from("\nendstream"),
  ]);
}

export interface Words {
  x: number;
  y: number;
  text: string;
  /** Points; 12 by default. */
  size?: number;
}

export interface PageOf {
  words: readonly Words[];
  /** Rectangles that lead somewhere. */
  links?: readonly { rect: readonly [number, number, number, number]; url: string }[];
}

const quoted = (text: string): string => `(${text.replace(/[\\()]/g, "\\$&")})`;
const contentOf = ({ words }: PageOf): string =>
  words.map(({ x, y, text, size = 12 }) => `BT /F1 ${size} Tf ${x} ${y} Td ${quoted(text)} Tj ET`).join("\n");

/** A document of such pages, with these words in its information dictionary. */
export function pdfWith(pages: readonly PageOf[], info: Record<string, string> = {}, language = "en-GB"): Buffer {
  const first = 5;
  const kids = pages.map((_, i) => `${first + 2 * i} 0 R`).join(" ");
  const objects: (string | Buffer)[] = [
    `<< /Type /Catalog /Pages 2 0 R /Lang (${language}) >>`,
    `<< /Type /Pages /Kids [${kids}] /Count ${pages.length} >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    `<< ${Object.entries(info)
      .map(([name, text]) => `/${name} ${quoted(text)}`)
      .join(" ")} >>`,
  ];
  for (const [i, page] of pages.entries()) {
    const annotations = (page.links ?? []).map(
      ({ rect, url }) =>
        `<< /Type /Annot /Subtype /Link /Rect [${rect.join(" ")}] /Border [0 0 0] /A << /S /URI /URI ${quoted(url)} >> >>`,
    );
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents ${first + 2 * i + 1} 0 R /Annots [${annotations.join(" ")}] >>`,
      flate(contentOf(page)),
    );
  }
  return pdfOf(objects, "/Info 4 0 R");
}
