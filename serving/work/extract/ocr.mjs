/**
 * Recognises printed English in pictures, with Tesseract compiled to WebAssembly. The code and its data come from two
 * optional packages on this machine; nothing is downloaded. One picture is read after another, in the child of
 * extractor.ts.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { gunzipSync } from "node:zlib";
import { clean, cutTo, menderOf, NO_METADATA, Unreadable } from "./bounds.mjs";

/**
 * Lowest mean confidence of the words of a picture, of 100: below it the letters are mostly guesses of a photograph.
 */
const LEAST_CONFIDENCE = 55;
/** Mode of Tesseract that uses its neural network alone. */
const LSTM_ONLY = 1;
/** Page segmentation into columns and paragraphs, as Tesseract's command line has it by default. */
const AUTO = "3";
const require = createRequire(import.meta.url);

/** Resolves the packages. @throws Unreadable when they are not installed */
function installed() {
  try {
    return {
      core: require.resolve("tesseract.js-core/tesseract-core-simd-lstm.js"),
      wasm: require.resolve("tesseract.js-core/tesseract-core-simd-lstm.wasm"),
      data: require.resolve("@tesseract.js-data/eng/4.0.0_best_int/eng.traineddata.gz"),
    };
  } catch {
    throw new Unreadable("its text is in pictures, and recognition of text is not installed here");
  }
}

/** Joins the words that are broken at the ends of lines. */
function mended(text) {
  const join = menderOf(text);
  const lines = text.split("\n");
  for (let i = 1; i < lines.length; i++)
    [lines[i - 1], lines[i]] = join(lines[i - 1], lines[i]) ?? [lines[i - 1], lines[i]];
  return lines.join("\n");
}

/**
 * Begins a recogniser.
 * @returns {Promise<{read: (picture: Uint8Array, orientation?: number) => {text: string, confidence: number} | null}>}
 * `read` takes the orientation of EXIF, 1 to 8, and returns null for a picture that cannot be decoded
 * @throws Unreadable
 */
async function createRecogniser() {
  const { core, wasm, data } = installed();
  const quiet = () => {};
  const module = await require(core)({
    wasmBinary: readFileSync(wasm),
    print: quiet,
    printErr: quiet,
    TesseractProgress: quiet,
  });
  module.FS.writeFile("eng.traineddata", gunzipSync(readFileSync(data)));
  const engine = new module.TessBaseAPI();
  if (engine.Init(null, "eng", LSTM_ONLY) !== 0) throw new Unreadable("recognition of text cannot be begun here");
  engine.SetVariable("tessedit_pageseg_mode", AUTO);
  return {
    read(picture, orientation = 1) {
      module.FS.writeFile("/input", picture);
      if (engine.SetImageFile(orientation, 0) === 1) return null;
      engine.Recognize(null);
      const text = mended(
        clean(engine.GetUTF8Text())
          .replace(/\n{3,}/g, "\n\n")
          .trim(),
      );
      return { text, confidence: Math.max(0, engine.MeanTextConf()) };
    },
  };
}

/** Refuses text that was mostly guessed. @throws Unreadable */
function believe({ text, confidence }) {
  if (text === "") throw new Unreadable("no text was recognised in it");
  if (confidence < LEAST_CONFIDENCE) {
    const says = `confidence ${confidence} of 100, and at least ${LEAST_CONFIDENCE} is needed`;
    throw new Unreadable(`no text was recognised in it (${says})`);
  }
}

/** Returns the orientation that a JPEG or TIFF states in its EXIF data, 1 to 8. */
function orientationOf(bytes) {
  const head = bytes.toString("latin1", 0, 2_000);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the tag of the orientation, its type, count and value.
  const found = /\x12\x01\x03\0\x01\0\0\0([\x01-\x08])|\x01\x12\0\x03\0\0\0\x01\0([\x01-\x08])/.exec(head);
  return (found?.[1] ?? found?.[2] ?? "\x01").charCodeAt(0);
}

/**
 * Extracts the text of a picture.
 * @param {Buffer} bytes
 * @throws Unreadable
 */
export async function readImage(bytes, { limits }) {
  const { read } = await createRecogniser();
  const found = read(bytes, orientationOf(bytes));
  if (!found) throw new Unreadable("it is no picture that can be decoded");
  believe(found);
  const text = cutTo(found.text, limits.textChars);
  return {
    part: "whole",
    metadata: { ...NO_METADATA, pages: 1 },
    text,
    headings: [],
    tables: [],
    links: [],
    cut: text.length < found.text.length ? ["text"] : [],
    recognised: { language: "eng", pages: 1, confidence: found.confidence },
  };
}

/** Smallest and largest picture that is read, pixels. */
const LEAST_PIXELS = 20_000;
const MOST_PIXELS = 40_000_000;
/** Largest number of pictures of one page that are read. */
const PICTURES = 8;
/** Part of the processor time of a document that recognition may use. */
const SHARE = 0.75;
/** Number with which PDF.js marks decoded pictures of one bit a pixel. Others have 1, 3 or 4 bytes a pixel. */
const BITS = 1;
/** EXIF orientation of a page, by the degrees by which it is turned clockwise. */
const TURNED = { 90: 6, 180: 3, 270: 8 };

/** Converts a decoded picture to an uncompressed netpbm format; null if it has another number of bytes a pixel. */
function netpbm({ width, height, data: { buffer, byteOffset, byteLength }, kind }) {
  const data = Buffer.from(buffer, byteOffset, byteLength);
  if (kind === BITS) {
    // Bits of PDF.js are white when set, those of P4 black.
    const bits = data.subarray(0, height * Math.ceil(width / 8)).map((byte) => ~byte);
    return Buffer.concat([Buffer.from(`P4\n${width} ${height}\n`), bits]);
  }
  const channels = data.length / (width * height);
  if (![1, 3, 4].includes(channels)) return null;
  const head = Buffer.from(`${channels === 1 ? "P5" : "P6"}\n${width} ${height}\n255\n`);
  if (channels !== 4) return Buffer.concat([head, data]);
  const rgb = Buffer.alloc(width * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) rgb.set(data.subarray(from, from + 3), to);
  return Buffer.concat([head, rgb]);
}

/** Returns the first {@link PICTURES} pictures of readable size that a page draws, in drawing order. */
async function picturesOf(page, names) {
  const { fnArray, argsArray } = await page.getOperatorList();
  const found = [];
  for (const [i, operation] of fnArray.entries()) {
    if (!names.has(operation) || found.length === PICTURES) continue;
    const [id] = argsArray[i];
    const objects = String(id?.data ?? id).startsWith("g_") ? page.commonObjs : page.objs;
    const direct = typeof id === "object" && id?.data?.length > 64 ? id : null;
    const picture = direct ?? (await new Promise((resolve) => objects.get(String(id?.data ?? id), resolve)));
    const pixels = picture?.data ? picture.width * picture.height : 0;
    if (pixels >= LEAST_PIXELS && pixels <= MOST_PIXELS) found.push(picture);
  }
  return found;
}

/**
 * Recognises the pictures of a page that is turned by so many degrees.
 * @returns {{text: string, confidence: number} | null}
 */
function readPictures(pictures, turned, reader) {
  const texts = [];
  let confidence = 100;
  for (const picture of pictures) {
    const packed = netpbm(picture);
    const found = packed && reader.read(packed, TURNED[turned]);
    if (!found || found.text === "" || found.confidence < LEAST_CONFIDENCE) continue;
    texts.push(found.text);
    confidence = Math.min(confidence, found.confidence);
  }
  return texts.length === 0 ? null : { text: texts.join("\n\n"), confidence };
}

/**
 * Recognises the text of pages of a PDF, as many as the processor time of a document allows.
 * @param {object} document of PDF.js
 * @param {number[]} numbers of pages without text
 * @param {{limits: object, isAll: boolean}} asked `isAll`: no page of the document has text; if some have, less time is
 * used
 * @returns {Promise<{texts: Map<number, string>, recognised: object | null, isCut: boolean} | null>} null when some
 * pages have text and recognition is not installed
 * @throws Unreadable when no page has text and recognition is not installed
 */
export async function readScans(document, numbers, { limits, isAll }) {
  const { getResolvedPDFJS } = await import("unpdf");
  const { OPS } = await getResolvedPDFJS();
  const names = new Set([OPS.paintImageXObject, OPS.paintImageMaskXObject, OPS.paintInlineImageXObject]);
  const most = 1_000 * SHARE * (isAll ? limits.cpuMs : limits.sharedCpuMs);
  const usedMicros = () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  };
  const texts = new Map();
  let reader = null;
  let confidence = 0;
  let longest = 0;
  for (const number of numbers) {
    const before = usedMicros();
    if (before + longest > most) return { texts, recognised: recognition(texts, confidence), isCut: true };
    const page = await document.getPage(number);
    const pictures = await picturesOf(page, names);
    page.cleanup();
    if (pictures.length === 0) continue;
    reader ??= await createRecogniser().catch((error) => {
      if (isAll) throw error;
      return null;
    });
    if (!reader) return null;
    const found = readPictures(pictures, page.rotate, reader);
    longest = Math.max(longest, usedMicros() - before);
    if (!found) continue;
    texts.set(number, found.text);
    confidence += found.confidence;
  }
  return { texts, recognised: recognition(texts, confidence), isCut: false };
}

const recognition = ({ size }, confidence) =>
  size === 0 ? null : { language: "eng", pages: size, confidence: Math.round(confidence / size) };
