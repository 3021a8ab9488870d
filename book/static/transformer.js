// The paper's model in plain JavaScript: what the package does with PyTorch, for one sentence.
// A matrix lies in one Float32Array, row after row; names and order are those of the Python.
window.Transformer = (() => {
  const { START, END, PAD, UNK, Token, Beam, score } = window.search;
  const { mean } = window.elements;

  // -------------------------------------------------------------------------------- numbers

  // The number that 16 bits mean: a sign, 5 bits of exponent, 10 of fraction.
  function fromHalf(bits) {
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
    return bits >> 15 ? -size : size;
  }

  // Tensors of a safetensors file: eight bytes for the length of the header, header, numbers. One of
  // whole numbers of 8 bits stands for them divided by its multiplier.
  function readTensors(bytes) {
    const start = 8 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const text = new TextDecoder().decode(bytes.subarray(8, start));
    const { __metadata__, ...header } = JSON.parse(text);
    const numbers = Float32Array.from({ length: 1 << 16 }, (_, bits) => fromHalf(bits));
    const tensors = {};
    for (const [name, { dtype, shape, data_offsets: place }] of Object.entries(header)) {
      const { buffer } = bytes.slice(...place.map((at) => start + at));
      const read = {
        F32: () => new Float32Array(buffer),
        F16: () => new Float32Array(new Uint16Array(buffer)).map((bits) => numbers[bits]),
        I8: () => new Float32Array(new Int8Array(buffer)),
      }[dtype];
      if (!read) throw new Error(`${name}: expected F32, F16 or I8; got ${dtype}`);
      tensors[name] = { shape, data: read() };
    }
    for (const [name, { data }] of Object.entries(tensors)) {
      const multiplier = tensors[`${name}.multiplier`]?.data[0];
      if (multiplier) for (let i = 0; i < data.length; i++) data[i] /= multiplier;
    }
    return tensors;
  }

  // A matrix as a list of its rows, which share its memory.
  function rowsOf(x, width) {
    return Array.from({ length: x.length / width }, (_, i) =>
      x.subarray(i * width, (i + 1) * width),
    );
  }

  // x Wᵀ + b for W (outs, ins), as PyTorch keeps it; four outputs of two rows of x at a time, so
  // numbers are read less often. Where their number is odd or not divisible by four, the last ones
  // are computed twice.
  function linear({ shape: [outs, ins], data: w }, x, bias) {
    const y = new Float32Array((x.length / ins) * outs);
    const last = x.length - ins;
    for (let block = 0; block < outs; block += 4) {
      const out = Math.min(block, outs - 4);
      const a = out * ins;
      const b = a + ins;
      const c = b + ins;
      const d = c + ins;
      for (let p = 0; p < x.length; p += 2 * ins) {
        const q = Math.min(p + ins, last);
        let pa = 0;
        let pb = 0;
        let pc = 0;
        let pd = 0;
        let qa = 0;
        let qb = 0;
        let qc = 0;
        let qd = 0;
        for (let i = 0; i < ins; i++) {
          const xp = x[p + i];
          const xq = x[q + i];
          const wa = w[a + i];
          const wb = w[b + i];
          const wc = w[c + i];
          const wd = w[d + i];
          pa += wa * xp;
          pb += wb * xp;
          pc += wc * xp;
          pd += wd * xp;
          qa += wa * xq;
          qb += wb * xq;
          qc += wc * xq;
          qd += wd * xq;
        }
        const top = (p / ins) * outs + out;
        const bottom = (q / ins) * outs + out;
        y[top] = pa;
        y[top + 1] = pb;
        y[top + 2] = pc;
        y[top + 3] = pd;
        y[bottom] = qa;
        y[bottom + 1] = qb;
        y[bottom + 2] = qc;
        y[bottom + 3] = qd;
      }
    }
    if (bias) for (let i = 0; i < y.length; i++) y[i] += bias.data[i % outs];
    return y;
  }

  // In place: softmax, or its logarithm.
  function softmax(x, log = false) {
    let largest = -Infinity;
    let sum = 0;
    for (let i = 0; i < x.length; i++) largest = Math.max(largest, x[i]);
    for (let i = 0; i < x.length; i++) sum += Math.exp(x[i] - largest);
    const shift = largest + Math.log(sum);
    for (let i = 0; i < x.length; i++) x[i] = log ? x[i] - shift : Math.exp(x[i] - shift);
    return x;
  }

  // ------------------------------------------------------------------------------ the model

  // Equation 1 for one query (d_model) and h heads: adds to output, and returns the weights (h, len).
  // pairs are what it may look at, keys and values.
  function attend(query, pairs, h, output) {
    const d_k = query.length / h;
    const weights = new Float32Array(h * pairs.length);
    rowsOf(weights, pairs.length).forEach((row, head) => {
      const from = head * d_k;
      const to = from + d_k;
      for (let k = 0; k < pairs.length; k++) {
        const { key } = pairs[k];
        let score = 0;
        for (let i = from; i < to; i++) score += query[i] * key[i];
        row[k] = score / Math.sqrt(d_k);
      }
      softmax(row);
      for (let k = 0; k < pairs.length; k++) {
        const { value } = pairs[k];
        const weight = row[k];
        for (let i = from; i < to; i++) output[i] += weight * value[i];
      }
    });
    return weights;
  }

  return class Transformer {
    constructor(config, file) {
      const { N, d_model, h, norm_first, positions, tie_embeddings, activation = "relu" } = config;
      const { norm_eps = 1e-5, decoder = "attention" } = config;
      const N_decoder = config.N_decoder ?? N;
      const known = { sinusoidal: d_model, endpoint: d_model - 2 };
      const plain = !norm_first && tie_embeddings && activation === "relu" && positions in known;
      if (!plain || !["attention", "ssru"].includes(decoder))
        throw new Error(
          "expected post-norm, ReLU, sinusoids, tied embeddings, and a known decoder",
        );
      const tensors = readTensors(file);
      const alone = tensors["embed.lut.weight"]; // of a decoder without an encoder
      const table = alone ?? tensors["src_embed.0.lut.weight"];
      this.decoder = alone ? "layers" : "decoder.layers";
      const recurrent = decoder === "ssru";
      const steps = known[positions];
      Object.assign(this, { N, N_decoder, d_model, h, norm_eps, recurrent, steps, tensors, table });
    }

    // Sections 3.4 and 3.5: rows of the table, times √d_model, plus the sinusoids of the position.
    embed(ids, positions, name = "", touch = {}) {
      const d = this.d_model;
      const x = new Float32Array(ids.length * d);
      for (let row = 0; row < ids.length; row++) {
        for (let i = 0; i < d; i++) {
          x[row * d + i] = this.table.data[ids[row] * d + i] * Math.sqrt(d);
        }
      }
      touch[`${name}.0`]?.(rowsOf(x, d));
      const y = x.map((number, at) => {
        const i = at % d;
        const angle = positions[(at - i) / d] / 10000 ** ((i - (i % 2)) / this.steps);
        return number + (i % 2 ? Math.cos(angle) : Math.sin(angle));
      });
      touch[name]?.(rowsOf(y, d));
      return y;
    }

    linear(name, x) {
      return linear(this.tensors[`${name}.weight`], x, this.tensors[`${name}.bias`]);
    }

    // Section 3.1: LayerNorm(x + y), where y is what the sub-layer made of x.
    addNorm(name, x, y, touch = {}) {
      const [gain, bias] = ["weight", "bias"].map((w) => this.tensors[`${name}.norm.${w}`].data);
      const d = this.d_model;
      const total = x.map((number, i) => number + y[i]);
      for (const row of rowsOf(total, d)) {
        const middle = mean(row);
        const variance = mean(row.map((number) => (number - middle) ** 2));
        const scale = 1 / Math.sqrt(variance + this.norm_eps);
        for (let i = 0; i < d; i++) row[i] = (row[i] - middle) * scale * gain[i] + bias[i];
      }
      touch[name]?.(rowsOf(total, d));
      return total;
    }

    // Section 3.3.
    feedForward(name, x, touch = {}) {
      const inner = this.linear(`${name}.w_1`, x);
      for (let i = 0; i < inner.length; i++) if (inner[i] < 0) inner[i] = 0;
      const output = this.linear(`${name}.w_2`, inner);
      touch[name]?.(rowsOf(output, this.d_model));
      return output;
    }

    keysAndValues(name, x) {
      const [keys, values] = ["w_k", "w_v"].map((w) =>
        rowsOf(this.linear(`${name}.${w}`, x), this.d_model),
      );
      return keys.map((key, i) => ({ key, value: values[i] }));
    }

    // Section 3.2.2: row i of x looks at the keys and values of seen(i). Functions in touch see, and
    // may change, rows of numbers (d_model): what the model computes under their names, which are
    // those of the Python, such as src_embed.0 (before the positions), src_embed, encoder.layers.0
    // and its self_attn, sublayer.0 and feed_forward; encoder.layers.0.self_attn.w_o:in is the heads
    // side by side, and generator.proj the scores (vocab).
    attention(name, x, seen, touch) {
      const y = new Float32Array(x.length);
      const weights = rowsOf(this.linear(`${name}.w_q`, x), this.d_model).map((query, i) =>
        attend(query, seen(i), this.h, y.subarray(i * this.d_model)),
      );
      touch[`${name}.w_o:in`]?.(rowsOf(y, this.d_model));
      const output = this.linear(`${name}.w_o`, y);
      touch[name]?.(rowsOf(output, this.d_model));
      return { output, weights };
    }

    // From ids to memory, the keys and values that each layer of the decoder looks at, and weights
    // (h, len) of each layer and token. It pauses after each layer: a page has other things to do.
    // It may start above some layers, at the numbers x that they have made of the ids.
    *encode(ids, positions = [...ids.keys()], touch = {}, { layers = 0, x } = {}) {
      x ??= this.embed(ids, positions, "src_embed", touch);
      const weights = [];
      const memory = [];
      for (let n = layers; n < this.N; n++) {
        const layer = `encoder.layers.${n}`;
        const all = this.keysAndValues(`${layer}.self_attn`, x);
        const self = this.attention(`${layer}.self_attn`, x, () => all, touch);
        x = this.addNorm(`${layer}.sublayer.0`, x, self.output, touch);
        const inner = this.feedForward(`${layer}.feed_forward`, x, touch);
        x = this.addNorm(`${layer}.sublayer.1`, x, inner, touch);
        touch[layer]?.(rowsOf(x, this.d_model));
        weights.push(self.weights);
        yield {};
      }
      for (let n = 0; n < this.N_decoder; n++) {
        memory.push(this.keysAndValues(`decoder.layers.${n}.src_attn`, x));
      }
      return { memory, weights };
    }

    // Each token looks at those of its path.
    selfAttention(name, x, tokens, n, touch) {
      const own = this.keysAndValues(name, x);
      for (const [i, token] of tokens.entries()) token.pairs.push(own[i]);
      const path = (i) => tokens[i].path.map((token) => token.pairs[n]);
      const { output, weights } = this.attention(name, x, path, touch);
      for (const [i, token] of tokens.entries()) token.self.push(weights[i]);
      return output;
    }

    // In its place, in Firefox's translators: c = f ⊙ c' + (1 - f) ⊙ W x, where c' is the state of
    // the token before and f = σ(W_f x + b); the output is ReLU(c).
    recurrence(name, x, tokens, n, touch) {
      const gates = this.linear(`${name}.w_f`, x);
      const added = this.linear(`${name}.w`, x);
      const states = new Float32Array(x.length);
      for (const [place, row] of rowsOf(states, this.d_model).entries()) {
        const { before } = tokens[place];
        for (let i = 0; i < row.length; i++) {
          const at = place * this.d_model + i;
          const f = 1 / (1 + Math.exp(-gates[at]));
          row[i] = f * (before ? before.states[n][i] : 0) + (1 - f) * added[at];
        }
        tokens[place].states.push(row);
      }
      const output = states.map((c) => Math.max(0, c));
      touch[name]?.(rowsOf(output, this.d_model));
      return output;
    }

    // What the decoder makes of some tokens, each after those of its path: rows (d_model), side by side.
    // A decoder without an encoder has no memory.
    states(tokens, memory, touch = {}) {
      const ids = tokens.map(({ id }) => id);
      const positions = tokens.map(({ length }) => length);
      let x = this.embed(ids, positions, "tgt_embed", touch);
      for (let n = 0; n < this.N_decoder; n++) {
        const layer = `${this.decoder}.${n}`;
        const look = this.recurrent ? "recurrence" : "selfAttention";
        const own = this[look](`${layer}.self_attn`, x, tokens, n, touch);
        x = this.addNorm(`${layer}.sublayer.0`, x, own, touch);
        if (memory) {
          const cross = this.attention(`${layer}.src_attn`, x, () => memory[n], touch);
          for (const [i, token] of tokens.entries()) token.cross.push(cross.weights[i]);
          x = this.addNorm(`${layer}.sublayer.1`, x, cross.output, touch);
        }
        const last = `${layer}.sublayer.${memory ? 2 : 1}`;
        x = this.addNorm(last, x, this.feedForward(`${layer}.feed_forward`, x, touch), touch);
      }
      return x;
    }

    // Log-probabilities (vocab) of what follows each of them.
    decode(tokens, memory, touch) {
      return this.predict(this.states(tokens, memory, touch), touch);
    }
    predict(x, touch = {}) {
      const logits = linear(this.table, x, this.tensors["generator.proj.bias"]);
      const rows = rowsOf(logits, this.table.shape[0]);
      touch["generator.proj"]?.(rows);
      return rows.map((row) => softmax(row, true));
    }

    // The tokens of a given output, from the start symbol on, and what the decoder makes of them.
    follow(ids, memory, touch) {
      const { path } = ids.reduce((token, id) => token.follow(id, 0), new Token(START));
      return { path, x: this.states(path, memory, touch) };
    }

    // How much likelier the first of two ids is than the second, in nats, after the given beginning
    // of an output.
    *contrast(ids, beginning, pair, touch, from) {
      const { memory } = yield* this.encode(ids, undefined, touch, from);
      const x = this.follow(beginning, memory, touch).x.subarray(-this.d_model);
      const bias = this.tensors["generator.proj.bias"]?.data;
      const [first, second] = pair.map((id) => {
        const row = this.table.data.subarray(id * this.d_model, (id + 1) * this.d_model);
        return row.reduce((sum, number, i) => sum + number * x[i], bias?.[id] ?? 0);
      });
      return first - second;
    }

    // Log-probabilities (vocab) of what may follow: no special token, and at the limit only the end.
    continuations(tokens, memory, limit, touch) {
      const rows = this.decode(tokens, memory, touch);
      for (const [i, row] of rows.entries()) {
        const end = row[END];
        if (tokens[i].length + 1 === limit) row.fill(-Infinity);
        for (const id of [START, PAD, UNK]) row[id] = -Infinity;
        row[END] = end;
      }
      return rows;
    }

    // ids end with the end symbol. After each step it gives the last tokens of the open hypotheses,
    // the most probable first; at the end the complete ones with the best scores.
    *search(ids, { beam = 4, alpha = 0.6, maxExtra = 50, nBest = 1, positions, touch, from } = {}) {
      const source = yield* this.encode(ids, positions, touch, from);
      const limit = ids.length + maxExtra;
      const found = new Beam(new Token(START), { beam, alpha, limit, nBest });
      while (found.canWin()) {
        const { open } = found;
        const rows = this.continuations(open, source.memory, limit, touch);
        open.forEach((token, i) => {
          token.next = rows[i];
        });
        found.extend();
        for (const token of open) token.next = null; // megabytes, in a large vocabulary
        yield { open: found.open, source };
      }
      const best = found.complete.slice(0, nBest);
      return { hypotheses: best.map((token) => ({ token, score: score(token, alpha) })), source };
    }
  };
})();
