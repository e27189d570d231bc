from sglang import _sgldbg
class TokenizerManager:
    async def handle_loop(self):
        while True:
            with self.soft_watchdog.disable():
                recv_obj = await async_sock_recv(self.recv_from_detokenizer); _sgldbg.off("tokenizer-receive.1") or _sgldbg.hit("tokenizer-receive.1", locals())
            self._result_dispatcher(recv_obj)
