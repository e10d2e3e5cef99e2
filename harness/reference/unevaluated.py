from harness.errors import UnsupportedError
def unfold_with_unevaluated(schemas, place, scope):
    raise UnsupportedError("unevaluated", keyword="unevaluatedProperties", pointer=place.pointer)
