// node onnx.js DIR: computes DIR/model.onnx with onnxruntime-node of the inputs that DIR/inputs.json lists
// (name, type, dims, file), and writes the output y to DIR/y.bin as float32.
const fs = require("fs"), path = require("path");
const ort = require(require.resolve("onnxruntime-node", { paths: [process.env.GNNACTOR_ONNXRUNTIME] }));
(async () => {
  const dir = process.argv[2];
  const session = await ort.InferenceSession.create(path.join(dir, "model.onnx"));
  const feeds = {};
  for (const { name, type, dims, file } of JSON.parse(fs.readFileSync(path.join(dir, "inputs.json")))) {
    const b = fs.readFileSync(path.join(dir, file));
    const a = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
    feeds[name] = new ort.Tensor(type, type === "int64" ? new BigInt64Array(a) : new Float32Array(a), dims);
  }
  const { y } = await session.run(feeds);
  fs.writeFileSync(path.join(dir, "y.bin"), Buffer.from(y.data.buffer, y.data.byteOffset, y.data.byteLength));
})().catch((err) => { console.error(err); process.exit(1); });
