// Derivatives of everything that a small Transformer computes, in reverse mode: `Tape` computes
// forward and backward. It is one function because a page opened from the disk can start a worker
// only from text.
window.makeTape = () => {
  // A matrix is a window on numbers, and on the derivatives of the loss by them: where it begins, and
  // how far apart its rows and columns are.
  const view = (data, grad, at, rows, columns, down, right) => ({
    data,
    grad,
    at,
    rows,
    columns,
    down,
    right,
  });
  const part = (x, at, rows, columns) => view(x.data, x.grad, at, rows, columns, x.down, x.right);
  const flip = (x) => view(x.data, x.grad, x.at, x.columns, x.rows, x.right, x.down);

  // C += A B, where c, a and b are the numbers that C, A and B are windows on; four columns at a
  // time, because a number of A is then read once for all. Past the last column nothing is kept.
  function multiply(c, C, a, A, b, B) {
    const [columns, inner, across, down] = [B.columns, A.columns, A.right, B.down];
    for (let i = 0; i < A.rows; i++) {
      for (let j = 0; j < columns; j += 4) {
        const second = Math.min(1, columns - 1 - j) * B.right;
        const third = Math.min(2, columns - 1 - j) * B.right;
        const fourth = Math.min(3, columns - 1 - j) * B.right;
        let [p, q, r, s] = [0, 0, 0, 0];
        let at = A.at + i * A.down;
        let from = B.at + j * B.right;
        for (let k = 0; k < inner; k++) {
          const factor = a[at];
          p += factor * b[from];
          q += factor * b[from + second];
          r += factor * b[from + third];
          s += factor * b[from + fourth];
          at += across;
          from += down;
        }
        const to = C.at + i * C.down + j * C.right;
        c[to] += p;
        if (j + 1 < columns) c[to + C.right] += q;
        if (j + 2 < columns) c[to + 2 * C.right] += r;
        if (j + 3 < columns) c[to + 3 * C.right] += s;
      }
    }
  }

  // For each row of x, what f makes of a number and each place in turn.
  function fold(x, number, f) {
    const all = new Float64Array(x.rows).fill(number);
    for (let i = 0; i < x.data.length; i++) {
      const row = Math.floor(i / x.columns);
      all[row] = f(all[row], i);
    }
    return all;
  }

  // Each operation computes a matrix and notes how its derivatives reach what it was made of. To go
  // backward is to follow these notes from the last to the first.
  class Tape {
    constructor(Numbers) {
      this.notes = [];
      this.matrix = (rows, columns) => {
        const [data, grad] = [0, 1].map(() => new Numbers(rows * columns));
        return view(data, grad, 0, rows, columns, columns, 1);
      };
    }

    backward() {
      while (this.notes.length) this.notes.pop()();
    }

    // C += A B: the derivatives are two products as well.
    product(C, A, B) {
      multiply(C.data, C, A.data, A, B.data, B);
      this.notes.push(() => {
        multiply(A.grad, A, C.grad, C, B.data, flip(B));
        multiply(B.grad, B, A.data, flip(A), C.grad, C);
      });
    }

    // Numbers forward(i); backward(y) returns what is to be done with each derivative.
    each(rows, columns, forward, backward) {
      const y = this.matrix(rows, columns);
      for (let i = 0; i < y.data.length; i++) y.data[i] = forward(i);
      this.notes.push(() => {
        const pass = backward(y);
        for (let i = 0; i < y.data.length; i++) pass(i, y.grad[i]);
      });
      return y;
    }

    // Rows of a table.
    look(table, ids) {
      const d = table.columns;
      const from = (i) => ids[Math.floor(i / d)] * d + (i % d);
      const pass = (i, g) => {
        table.grad[from(i)] += g;
      };
      return this.each(
        ids.length,
        d,
        (i) => table.data[from(i)],
        () => pass,
      );
    }

    // factor · x + y
    add(x, y, factor = 1) {
      const pass = (i, g) => {
        x.grad[i] += factor * g;
        y.grad[i] += g;
      };
      return this.each(
        x.rows,
        x.columns,
        (i) => factor * x.data[i] + y.data[i],
        () => pass,
      );
    }

    relu(x) {
      const pass = (i, g) => {
        x.grad[i] += x.data[i] > 0 ? g : 0;
      };
      return this.each(
        x.rows,
        x.columns,
        (i) => Math.max(0, x.data[i]),
        () => pass,
      );
    }

    // x Wᵀ + b for W (outs, ins), as PyTorch keeps it.
    linear(x, w, bias) {
      const y = bias ? this.look(bias, Array(x.rows).fill(0)) : this.matrix(x.rows, w.rows);
      this.product(y, x, flip(w));
      return y;
    }

    // Each row of factor · x as shares that sum to 1.
    softmax(x, factor) {
      const row = (i) => Math.floor(i / x.columns);
      const most = fold(x, -Infinity, (top, i) => Math.max(top, factor * x.data[i]));
      const power = (i) => Math.exp(factor * x.data[i] - most[row(i)]);
      const sums = fold(x, 0, (sum, i) => sum + power(i));
      return this.each(
        x.rows,
        x.columns,
        (i) => power(i) / sums[row(i)],
        (y) => {
          const means = fold(x, 0, (sum, i) => sum + y.data[i] * y.grad[i]);
          return (i, g) => {
            x.grad[i] += factor * y.data[i] * (g - means[row(i)]);
          };
        },
      );
    }

    // Each row with mean 0 and variance 1, times gain, plus bias.
    layerNorm(x, gain, bias) {
      const d = x.columns;
      const row = (i) => Math.floor(i / d);
      const means = fold(x, 0, (sum, i) => sum + x.data[i] / d);
      const variances = fold(x, 1e-5, (sum, i) => sum + (x.data[i] - means[row(i)]) ** 2 / d);
      const unit = (i) => (x.data[i] - means[row(i)]) / Math.sqrt(variances[row(i)]);
      const forward = (i) => unit(i) * gain.data[i % d] + bias.data[i % d];
      return this.each(x.rows, d, forward, (y) => {
        // To move or stretch a row changes nothing, so these parts of the derivative are taken off.
        const inner = (i) => y.grad[i] * gain.data[i % d];
        const moves = fold(x, 0, (sum, i) => sum + inner(i) / d);
        const stretches = fold(x, 0, (sum, i) => sum + (inner(i) * unit(i)) / d);
        return (i, g) => {
          gain.grad[i % d] += g * unit(i);
          bias.grad[i % d] += g;
          const rest = inner(i) - moves[row(i)] - stretches[row(i)] * unit(i);
          x.grad[i] += rest / Math.sqrt(variances[row(i)]);
        };
      });
    }
  }

  return { Tape, part, flip };
};
