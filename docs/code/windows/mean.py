from squall import AggregateBolt


class Mean(AggregateBolt):
    outputs = ("sensor", "celsius", "until")

    def init(self):
        return (0, 0.0)

    def add(self, total, tup):
        count, celsius = total
        return (count + 1, celsius + tup["celsius"])

    def merge(self, first, second):
        return (first[0] + second[0], first[1] + second[1])

    def result(self, total, window):
        count, celsius = total
        self.emit([window.key, celsius / count, window.end_ms])
