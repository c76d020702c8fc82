// The JSON that the docs promise for values of scripts, as the browser itself makes it: what the decoder has to find.
function shown(root) {
  const numbers = new Map(), referenced = new Set();
  const named = Object.fromEntries([Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array,
    Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array, DataView].map(one => [one.name, one]));
  const base64 = bytes => { let text = ""; for (const one of bytes) text += String.fromCharCode(one); return btoa(text); };
  const number = value => Number.isFinite(value) ? (Object.is(value, -0) ? {$negative_zero: 1} : value) : {$number: String(value)};
  const count = thing => { numbers.set(thing, numbers.size); return numbers.get(thing); };
  const flat = thing => Object.fromEntries(Object.keys(thing).map(name => [name, walk(thing[name])]));

  function walk(value) {
    if (value === undefined) return {$undefined: true};
    if (typeof value === "number") return number(value);
    if (typeof value === "bigint") return {$bigint: String(value)};
    if (value === null || typeof value !== "object") return value;
    if (numbers.has(value)) { referenced.add(numbers.get(value)); return {$ref: numbers.get(value)}; }
    if (ArrayBuffer.isView(value)) return {thing: value, plain: view(value)};
    const found = {thing: value};
    count(value);
    found.plain = plain(value, found);
    return found;
  }

  function view(value) {
    const name = Object.keys(named).find(one => value instanceof named[one]), buffer = value.buffer;
    const known = numbers.has(buffer), size = value.BYTES_PER_ELEMENT || 1;
    const bytes = new Uint8Array(buffer, value.byteOffset, value.byteLength);
    let here = null;
    if (known) { referenced.add(numbers.get(buffer)); here = {$ref: numbers.get(buffer)}; }
    else { count(buffer); here = {thing: buffer, plain: {$buffer: base64(new Uint8Array(buffer))}}; }
    count(value);
    if (known || bytes.length < buffer.byteLength)
      return {$view: name, offset: value.byteOffset, length: bytes.length / size, buffer: here};
    if (size === 1) return {$view: name, bytes: base64(bytes), of: buffer};
    return {$view: name, values: Array.from(value, one => typeof one === "bigint" ? String(one) : number(one)), of: buffer};
  }

  function plain(value, found) {
    if (value instanceof Date) return {$date: isNaN(value) ? null : Math.abs(value) > 253402300799999 ? +value : value.toISOString()};
    if (value instanceof RegExp) return {$regexp: value.source, flags: value.flags};
    if (value instanceof Map) return {$map: [...value].map(pair => pair.map(walk))};
    if (value instanceof Set) return {$set: [...value].map(walk)};
    if (value instanceof ArrayBuffer) {
      const made = {$buffer: base64(new Uint8Array(value))};
      return value.resizable ? {...made, max_length: value.maxByteLength} : made;
    }
    if (value instanceof Boolean) return {$boolean: value.valueOf()};
    if (value instanceof Number) return {$number_object: number(value.valueOf())};
    if (value instanceof String) return {$string_object: value.valueOf()};
    if (Object.prototype.toString.call(value) === "[object BigInt]") return {$bigint_object: String(value.valueOf())};
    if (value instanceof Error) {
      const made = {$error: value.name};
      if ("message" in value) made.message = value.message;
      made.stack = value.stack;
      if ("cause" in value) made.cause = walk(value.cause);
      return made;
    }
    if (Array.isArray(value)) {
      const names = Object.keys(value).filter(name => !(String(name >>> 0) === name));
      if (Object.keys(value).length - names.length < value.length) return {$sparse: flat(value), length: value.length};
      const items = value.map(walk);
      if (names.length) return {$array: items, properties: Object.fromEntries(names.map(one => [one, walk(value[one])]))};
      found.kind = "$array";
      return items;
    }
    found.kind = "$object";
    return flat(value);
  }

  function render(one) {
    if (one === null || typeof one !== "object") return one;
    if (Array.isArray(one)) return one.map(render);
    if (!("thing" in one)) return Object.fromEntries(Object.entries(one).map(([name, value]) => [name, render(value)]));
    const id = numbers.get(one.thing), marked = referenced.has(id) ? {$id: id} : {};
    let {plain, kind} = one;
    if (plain.of) {
      const {of, ...rest} = plain;
      plain = referenced.has(numbers.get(of)) ? {buffer: {$id: numbers.get(of)}, ...rest} : rest;
    }
    const made = kind === "$array" ? plain.map(render)
      : Object.fromEntries(Object.entries(plain).map(([name, value]) => [name, render(value)]));
    if (!kind) return {...marked, ...made};
    const escaped = kind === "$object" && Object.keys(made).some(name => name.startsWith("$"));
    return referenced.has(id) || escaped ? {...marked, [kind]: made} : made;
  }

  return render(walk(root));
}
async function told(name, truth) {
  await fetch("/truth/" + name, {method: "POST", body: JSON.stringify(truth)});
}
