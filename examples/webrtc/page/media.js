// How long candidates are awaited. A TURN server that does not answer must not hold up the call.
const gatherTime = 2000

// Media are the video and audio of one call on this page: its camera and microphone, and the connection to the other page.
export class Media {
  local // the stream of this page, once the user has allowed it
  remote = new MediaStream()
  closed = false
  // Without servers, a connection works in one network only. For others, put the URLs and short-lived credentials of
  // STUN and TURN servers here, which your backend hands out.
  #peer = new RTCPeerConnection({ iceServers: [] })

  // constructor takes a function to call if the connection to the other page fails for good.
  constructor(failed) {
    this.#peer.addEventListener('track', ({ track }) => this.remote.addTrack(track))
    this.#peer.addEventListener('connectionstatechange', () => {
      if (this.#peer.connectionState === 'failed') failed()
    })
  }

  // offer returns what the caller sends, as SDP.
  async offer() {
    await this.#open()
    return this.#describe()
  }

  // answer returns what the callee sends, as SDP.
  async answer(offer) {
    await this.#peer.setRemoteDescription({ type: 'offer', sdp: offer })
    await this.#open()
    return this.#describe()
  }

  // connect takes the answer. It does nothing if the caller has it.
  async connect(answer) {
    if (this.#peer.signalingState === 'have-local-offer') {
      await this.#peer.setRemoteDescription({ type: 'answer', sdp: answer })
    }
  }

  close() {
    this.closed = true
    this.#peer.close()
    this.local?.getTracks().forEach(track => track.stop()) // the light of the camera goes out
  }

  async #open() {
    this.local = await navigator.mediaDevices.getUserMedia({ audio: true, video: { width: { ideal: 640 } } })
    if (this.closed) return this.close() // meanwhile
    this.local.getTracks().forEach(track => this.#peer.addTrack(track, this.local))
  }

  // #describe returns the description of this side with all candidates in it, so that it is one message.
  async #describe() {
    await this.#peer.setLocalDescription()
    if (this.#peer.iceGatheringState !== 'complete') {
      await new Promise(resolve => {
        setTimeout(resolve, gatherTime)
        this.#peer.addEventListener('icecandidate', ({ candidate }) => candidate ?? resolve())
      })
    }
    return this.#peer.localDescription.sdp
  }
}
