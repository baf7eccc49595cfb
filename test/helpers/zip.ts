import { crc32, deflateRawSync } from "node:zlib";

/** A ZIP of these files, deflated. With `wide` every size stands in the extra fields of ZIP64, as past 4 GB. */
export function zipOf(files: Readonly<Record<string, Uint8Array>>, wide = false): Buffer {
  const [parts, directory]: [Buffer[], Buffer[]] = [[], []];
  let offset = 0;
  for (const [name, bytes] of Object.entries(files)) {
    const packed = deflateRawSync(bytes);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(8, 8);
    local.writeUInt16LE(Buffer.byteLength(name), 26);
    const extra = Buffer.alloc(wide ? 28 : 0);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(8, 10);
    entry.writeUInt32LE(crc32(bytes), 16);
    entry.writeUInt16LE(Buffer.byteLength(name), 28);
    entry.writeUInt16LE(extra.length, 30);
    // In the order of the extra field (APPNOTE 4.5.3): unpacked size, packed size, offset.
    if (wide) {
      extra.writeUInt16LE(1, 0);
      extra.writeUInt16LE(24, 2);
    }
    [bytes.length, packed.length, offset].forEach((value, i) => {
      entry.writeUInt32LE(wide ? 0xffffffff : value, [24, 20, 42][i]!);
      if (wide) extra.writeBigUInt64LE(BigInt(value), 4 + 8 * i);
    });
    parts.push(local, Buffer.from(name), packed);
    directory.push(entry, Buffer.from(name), extra);
    offset += local.length + Buffer.byteLength(name) + packed.length;
  }
  const listed = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  const count = Object.keys(files).length;
  for (const at of [8, 10]) end.writeUInt16LE(wide ? 0xffff : count, at);
  end.writeUInt32LE(wide ? 0xffffffff : listed.length, 12);
  end.writeUInt32LE(wide ? 0xffffffff : offset, 16);
  if (!wide) return Buffer.concat([...parts, listed, end]);
  const end64 = Buffer.alloc(76);
  end64.writeUInt32LE(0x06064b50, 0);
  for (const at of [24, 32]) end64.writeBigUInt64LE(BigInt(count), at);
  end64.writeBigUInt64LE(BigInt(listed.length), 40);
  end64.writeBigUInt64LE(BigInt(offset), 48);
  end64.writeUInt32LE(0x07064b50, 56);
  end64.writeBigUInt64LE(BigInt(offset + listed.length), 64);
  return Buffer.concat([...parts, listed, end64, end]);
}
