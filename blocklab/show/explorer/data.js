"use strict";
// What the page was given: a document of plain data, and arrays of 16-bit words that it points into.

/** Return all words: the page holds gzip of their low bytes, then their high bytes, in base64. */
async function readWords(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = planes.length / 2;
  const words = new Uint16Array(count);
  for (let i = 0; i < count; i++) words[i] = planes[i] | (planes[count + i] << 8);
  return words;
}

/** Return bfloat16 words as floats: they are the upper halves of float32. */
function toFloats(words) {
  const bits = new Uint32Array(words.length);
  for (let i = 0; i < words.length; i++) bits[i] = words[i] << 16;
  return new Float32Array(bits.buffer);
}

/** Return the words of {at, shape}. */
function wordsOf(allWords, place) {
  const size = place.shape.reduce((a, b) => a * b, 1);
  return allWords.subarray(place.at, place.at + size);
}

/** Return a picture [B, H, T, W] with its values as floats. */
function pictureOf(allWords, place) {
  const [B, H, T, W] = place.shape;
  return { B, H, T, W, every: place.every, values: toFloats(wordsOf(allWords, place)) };
}

/** Return the other trace's picture where the page holds only this one and the difference. */
function otherPicture(picture, error) {
  const values = picture.values.map((a, i) => (Number.isFinite(a) ? a - error.values[i] : a));
  return { ...picture, values };
}

/** Return the rows of one head: tokens down. */
function headGrid(picture, batch, head) {
  const { H, T, W, every } = picture;
  const b = Math.min(batch, picture.B - 1);
  const start = (b * H + Math.min(head, H - 1)) * T * W;
  return {
    rows: T,
    columns: W,
    everyRow: every[0],
    every: every[1],
    values: picture.values.subarray(start, start + T * W),
  };
}

/** Return the rows of one token: heads down. */
function tokenGrid(picture, batch, token) {
  const { H, T, W, every } = picture;
  const b = Math.min(batch, picture.B - 1);
  const row = Math.min(Math.floor(token / every[0]), T - 1);
  const values = new Float32Array(H * W);
  for (let h = 0; h < H; h++) {
    const start = ((b * H + h) * T + row) * W;
    values.set(picture.values.subarray(start, start + W), h * W);
  }
  return { rows: H, columns: W, everyRow: 1, every: every[1], values };
}
