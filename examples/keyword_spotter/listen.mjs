// From audio to the name of a word, without a browser's interfaces: a test runs this in node.
const RATE = 8000;

// The second of `samples` (Float32Array, 8000 a second) with the most energy, in its middle.
export function loudestSecond(samples) {
  const second = new Float32Array(RATE);
  let best = 0, most = -1, sum = 0;
  const window = Math.min(RATE / 2, samples.length);
  for (let n = 0; n < samples.length; n++) {
    sum += samples[n] ** 2 - (n >= window ? samples[n - window] ** 2 : 0);
    if (sum > most) [most, best] = [sum, n - window + 1];
  }
  const start = Math.max(0, Math.min(best - (RATE - window) / 2, samples.length - RATE));
  second.set(samples.subarray(start, start + RATE));
  return second;
}

// The word in samples: { label, share } with the share of the softmax, of a loaded module.
export function heard(net, labels, samples) {
  const scores = [...net.spotter_run(loudestSecond(samples))];
  const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
  const at = scores.indexOf(Math.max(...scores));
  return { label: labels[at], share: powers[at] / powers.reduce((a, b) => a + b) };
}
