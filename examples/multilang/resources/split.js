'use strict';
const { BasicBolt } = require('./storm');

class Split extends BasicBolt {
  process(tup) {
    for (const word of tup.get('line').split(/\s+/).filter(Boolean)) this.emit({ tuple: [word] });
  }
}

new Split().run();
