'use strict';
const { run } = require('./storm.js');

run(([line], emit) => {
  for (const word of line.split(/\s+/).filter(Boolean)) emit([word]);
});
