/**
 * Opens Office Open XML packages (ECMA-376 part 2): DOCX, XLSX and PPTX are ZIP files of XML parts. Sizes are bounded
 * before anything is unpacked, and no part may declare a document type, so there are no entities but those of XML
 * itself.
 */
import { posix } from "node:path";
import { DOMParser } from "linkedom";
import { fromBufferPromise } from "yauzl";
import { brief, decoded, NO_METADATA, PastBound, Unreadable } from "./bounds.mjs";

/** Content types of main parts (ECMA-376 part 1, and MS-OFFMACRO2 for files with macros), and their kinds. */
const MAIN_TYPES = [
  [
    "docx",
    /^application\/vnd\.(?:openxmlformats-officedocument\.wordprocessingml|ms-word)\.\w+(?:\.macroEnabled\w*)?\.main\+xml$/i,
  ],
  [
    "xlsx",
    /^application\/vnd\.(?:openxmlformats-officedocument\.spreadsheetml|ms-excel)\.\w+(?:\.macroEnabled\w*)?\.main\+xml$/i,
  ],
  [
    "pptx",
    /^application\/vnd\.(?:openxmlformats-officedocument\.presentationml|ms-powerpoint)\.\w+(?:\.macroEnabled\w*)?\.main\+xml$/i,
  ],
];
const RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const TAG = /<(\/?)[\w:.-]+[^<>]*?(\/?)>/g;

/** Opens a ZIP file. @returns {Promise<{zip: object, entries: Map<string, object>}>} @throws PastBound, Unreadable */
async function openZip(bytes, limits) {
  const broken = (error) =>
    new Unreadable(`it is no ZIP file that can be read: ${String(error?.message).slice(0, 120)}`);
  const zip = await fromBufferPromise(bytes, { lazyEntries: true }).catch((error) => {
    throw broken(error);
  });
  if (zip.entryCount > limits.entries) {
    throw new PastBound("entries", `${zip.entryCount} files in it, and at most ${limits.entries} are read`);
  }
  const entries = new Map();
  let unpacked = 0;
  try {
    for await (const entry of zip.eachEntry()) {
      unpacked += entry.uncompressedSize;
      entries.set(entry.fileName, entry);
    }
  } catch (error) {
    throw broken(error);
  }
  if (unpacked > limits.unpackedBytes) {
    throw new PastBound("unpacked", `${unpacked} bytes unpacked, and at most ${limits.unpackedBytes} are read`);
  }
  return { zip, entries };
}

/** Unpacks an entry; it is never longer than its entry says, and that is bounded. @throws Unreadable */
async function unpack({ zip, entries }, name) {
  const entry = entries.get(name);
  if (!entry) return null;
  if (entry.generalPurposeBitFlag & 1) throw new Unreadable("it is locked with a password");
  try {
    const chunks = [];
    for await (const chunk of await zip.openReadStreamPromise(entry)) chunks.push(chunk);
    return Buffer.concat(chunks);
  } catch (error) {
    throw new Unreadable(`${name.slice(0, 100)} in it cannot be unpacked: ${String(error?.message).slice(0, 120)}`);
  }
}

/**
 * Counts the tags of XML and the depth of its elements, before a parser that may recurse.
 * @throws PastBound, Unreadable
 */
function checkXml(text, counted, limits) {
  if (/<!(?:DOCTYPE|ENTITY)/i.test(text)) {
    throw new Unreadable("a part of it declares a document type, which ECMA-376 forbids");
  }
  let depth = 0;
  for (const [, closes, isEmpty] of text.matchAll(TAG)) {
    counted.tags += 1;
    if (closes) depth -= 1;
    else if (!isEmpty) depth += 1;
    if (depth > limits.depth) throw new PastBound("depth", `elements nest deeper than ${limits.depth}`);
    if (counted.tags > limits.xmlTags) throw new PastBound("markup", `more than ${limits.xmlTags} tags of XML`);
  }
}

const parsed = (text) => new DOMParser().parseFromString(text, "text/xml");
/** Returns the elements of a name (with its prefix), in document order. */
export const elementsOf = (node, name) => [...node.getElementsByTagName(name)];

/** An opened package. */
class Package {
  #files;
  #limits;
  #counted = { tags: 0 };

  constructor(files, limits) {
    this.#files = files;
    this.#limits = limits;
  }

  names() {
    return [...this.#files.entries.keys()];
  }

  /** Text of a part, checked as {@link checkXml} says; null when there is none. */
  async text(name) {
    const bytes = await unpack(this.#files, name);
    if (bytes === null) return null;
    const text = decoded(bytes);
    checkXml(text, this.#counted, this.#limits);
    return text;
  }

  /** A part as a tree; null when there is none. */
  async xml(name) {
    const text = await this.text(name);
    return text === null ? null : parsed(text);
  }

  /** Checks that a part declares no document type; only its beginning can. */
  async checkHead(name) {
    const bytes = await unpack(this.#files, name);
    if (/<!(?:DOCTYPE|ENTITY)/i.test(decoded(bytes.subarray(0, 65_536)))) {
      throw new Unreadable("a part of it declares a document type, which ECMA-376 forbids");
    }
  }

  /** Returns the relationships of a part by id: their type and target, which is a part's name or an outside address. */
  async relations(name) {
    const at = posix.join(posix.dirname(name), "_rels", `${posix.basename(name)}.rels`);
    const tree = await this.xml(at);
    const found = new Map();
    for (const one of tree ? elementsOf(tree, "Relationship") : []) {
      const target = one.getAttribute("Target") ?? "";
      const isOutside = one.getAttribute("TargetMode") === "External";
      const part = target.startsWith("/") ? target.slice(1) : posix.join(posix.dirname(name), target);
      found.set(one.getAttribute("Id"), {
        target: isOutside ? target : part,
        isOutside,
        type: one.getAttribute("Type") ?? "",
      });
    }
    return found;
  }

  /** Name of the main part. @throws Unreadable */
  async main() {
    for (const { target, type } of (await this.relations("")).values()) {
      if (type === `${RELATIONS}/officeDocument` || type.endsWith("/relationships/officeDocument")) return target;
    }
    throw new Unreadable("its main part is not there");
  }

  /** Core and extended properties (ECMA-376 parts 2 and 1). */
  async metadata() {
    const core = await this.xml("docProps/core.xml");
    const app = await this.xml("docProps/app.xml");
    const of = (tree, ...names) => {
      for (const name of names) {
        const said = brief(tree?.getElementsByTagName(name)[0]?.textContent);
        if (said !== null) return said;
      }
      return null;
    };
    const pages = Number(of(app, "Pages", "Slides"));
    return {
      ...NO_METADATA,
      title: of(core, "dc:title"),
      author: of(core, "dc:creator"),
      language: of(core, "dc:language"),
      description: of(core, "dc:description", "dc:subject"),
      published: of(core, "dcterms:created"),
      pages: Number.isInteger(pages) && pages > 0 ? pages : null,
    };
  }
}

/** Opens a package. @throws PastBound, Unreadable */
export const openPackage = async (bytes, limits) => new Package(await openZip(bytes, limits), limits);

/** Names other ZIP files that people send. */
function otherZip(names, mimetype) {
  if (mimetype?.startsWith("application/vnd.oasis.opendocument.")) return "an OpenDocument file (.odt, .ods or .odp)";
  if (mimetype?.startsWith("application/epub")) return "an EPUB book";
  return names.some((name) => name.endsWith(".bin") && name.startsWith("xl/"))
    ? "a binary workbook (.xlsb)"
    : "a ZIP file";
}

/** Tells which kind of package a ZIP file is. @returns {Promise<{kind: string} | {refused: string}>} */
export async function kindOfPackage(bytes, limits) {
  const files = await openZip(bytes, limits);
  const types = await new Package(files, limits).xml("[Content_Types].xml");
  for (const one of types ? elementsOf(types, "Override") : []) {
    const type = one.getAttribute("ContentType") ?? "";
    const kind = MAIN_TYPES.find(([, names]) => names.test(type))?.[0];
    if (kind) return { kind };
  }
  const isTyped = (files.entries.get("mimetype")?.uncompressedSize ?? 1_000) < 200;
  const mimetype = isTyped ? (await unpack(files, "mimetype"))?.toString("latin1") : undefined;
  return { refused: otherZip([...files.entries.keys()], mimetype) };
}
